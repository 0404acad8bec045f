//! An echo server over the HTTP/2 and gRPC stack, for conformance tools and for measuring the
//! stack alone: unary calls answer with their request, streams with each message, HTTP with a line.
//!
//! ```text
//! echo [address, default 127.0.0.1:2399] [io engine: auto, uring, epoll] [streams at once]
//! ```

use std::process::ExitCode;
use std::rc::Rc;

use bytes::Bytes;
use ringbolt_io::net::ListenHow;
use ringbolt_io::select::{Engine, driver};
use ringbolt_io::{Address, Executor, Io, Stream};
use ringbolt_proto::method::Mode;
use ringbolt_server::connection::{
    Call, Connection, LocalFuture, Parts, PeerInfo, Service, Web, WebCall,
};
use ringbolt_server::grpc::Status;
use ringbolt_server::http2::Limits;

struct Echo {
    io: Io,
}

impl Service for Echo {
    fn call(self: Rc<Self>, mut call: Call) {
        if call.method.mode != Mode::Bidi {
            let message = call.requests.try_next().expect("a single request is whole");
            return call.responder.unary(message);
        }
        self.io.spawn("echo", async move {
            while let Some(Ok(message)) = call.requests.next().await {
                if call.responder.send(message).await.is_err() {
                    return;
                }
            }
            call.responder.finish(Status::OK);
        });
    }
}

impl Web for Echo {
    fn http1(self: Rc<Self>, stream: Stream, _: Vec<u8>, _: Rc<PeerInfo>) -> LocalFuture {
        Box::pin(async move {
            let answer = "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n";
            let _ = stream.write(vec![Bytes::from_static(answer.as_bytes())]).await;
        })
    }

    fn call(self: Rc<Self>, call: WebCall) {
        let body = Bytes::from_static(b"the ring holds\n");
        call.responder.respond(200, &[("content-type", "text/plain")], body);
    }
}

async fn accept(io: Io, address: Address, concurrent_streams_max: u32) -> std::io::Result<()> {
    let how = ListenHow { reuse_address: true, ..ListenHow::default() };
    let listener = io.listen(&address, &how)?;
    println!("echo on {}", listener.address());
    let echo = Rc::new(Echo { io: io.clone() });
    let parts = Parts {
        share: ringbolt_server::budget::Share::new(64 << 20),
        service: echo.clone(),
        web: Some(echo),
        http2: Limits { concurrent_streams_max, ..Limits::default() },
        message_bytes_max: 2 * 1024 * 1024,
    };
    loop {
        let (stream, peer) = listener.accept().await?;
        let connection = Connection::new(&io, stream, PeerInfo::from(peer), parts.clone());
        io.spawn("connection", connection.serve());
    }
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:2399".to_owned());
    let engine = arguments.next().unwrap_or_else(|| "auto".to_owned());
    let streams = arguments.next().and_then(|streams| streams.parse().ok()).unwrap_or(u32::MAX);
    let address = match address.parse() {
        Ok(address) => Address::Tcp(address),
        Err(_) => Address::Unix(address.into()),
    };
    let outcome = engine
        .parse::<Engine>()
        .and_then(|engine| driver(engine, 1).map_err(|error| error.to_string()));
    let driver = match outcome {
        Ok((driver, why)) => {
            println!("{why}");
            driver
        }
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let executor = Executor::new(driver);
    let io = executor.io();
    match executor.run(accept(io, address, streams)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
