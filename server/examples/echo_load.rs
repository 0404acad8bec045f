//! Keeps an echo server busy and tells what each request cost it.
//!
//! ```text
//! echo_load <address> <pid of the server> <connections> <streams each> <seconds>
//! ```
//! The header block is the same for every request, as Go clients send it. The server's CPU time is
//! read from `/proc/<pid>/stat`.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use ringbolt_io::select::{Engine, driver};
use ringbolt_io::{Address, Executor, Io, Stream};
use ringbolt_server::http2::StreamId;
use ringbolt_server::http2::frame::{
    FrameHeader, PREFACE, flag, kind, put_settings, put_window_update,
};

const MESSAGE_BYTES: usize = 280;

/// What Go's client sends first: literals that go into the table.
fn first_block() -> BytesMut {
    let mut out = BytesMut::new();
    out.put_slice(&[0x83, 0x86]);
    let fields: [(&str, &str); 7] = [
        (":path", "/etcdserverpb.KV/Put"),
        (":authority", "127.0.0.1:2379"),
        ("content-type", "application/grpc"),
        ("user-agent", "grpc-go/1.82.1"),
        ("te", "trailers"),
        ("client-api-version", "3.7"),
        ("grpc-accept-encoding", "gzip"),
    ];
    for (name, value) in fields {
        out.put_u8(0x40);
        for text in [name, value] {
            out.put_u8(u8::try_from(text.len()).expect("short"));
            out.put_slice(text.as_bytes());
        }
    }
    out
}

fn later_block() -> Vec<u8> {
    let mut out = vec![0x83, 0x86];
    out.extend((0..7).map(|index| 0x80 | (62 + 6 - index)));
    out
}

fn put_request(out: &mut BytesMut, stream: u32, block: &[u8]) {
    let stream = StreamId(stream);
    let header = |length, kind, flags| FrameHeader { length, kind, flags, stream };
    header(block.len(), kind::HEADERS, flag::END_HEADERS).put(out);
    out.put_slice(block);
    header(MESSAGE_BYTES + 5, kind::DATA, flag::END_STREAM).put(out);
    out.put_u8(0);
    out.put_u32(u32::try_from(MESSAGE_BYTES).expect("short"));
    out.put_bytes(7, MESSAGE_BYTES);
}

async fn drive(stream: Stream, streams: u32, done: Rc<Cell<u64>>) {
    let mut out = BytesMut::new();
    out.put_slice(PREFACE);
    put_settings(&mut out, &[(4, 0x7fff_ffff)]);
    put_window_update(&mut out, StreamId(0), 0x7fff_0000);
    let mut next = 1;
    for index in 0..streams {
        let block = if index == 0 { first_block().to_vec() } else { later_block() };
        put_request(&mut out, next, &block);
        next += 2;
    }
    let block = later_block();
    let mut pending = Vec::new();
    loop {
        if !out.is_empty() && stream.write(vec![out.split().freeze()]).await.is_err() {
            return;
        }
        let (outcome, buffer) = stream.read(pending).await;
        pending = buffer;
        if !matches!(outcome, Ok(size) if size > 0) {
            return;
        }
        let mut at = 0;
        while let Some(header) = FrameHeader::parse(&pending[at..]) {
            let end = at + 9 + header.length;
            if end > pending.len() {
                break;
            }
            if header.kind == kind::HEADERS && header.has(flag::END_STREAM) {
                done.set(done.get() + 1);
                put_request(&mut out, next, &block);
                next += 2;
            }
            assert!(header.kind != kind::GOAWAY, "{:?}", Bytes::copy_from_slice(&pending[at..end]));
            at = end;
        }
        pending.drain(..at);
    }
}

fn cpu_ticks(pid: &str) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("a running server");
    let fields: Vec<&str> = stat.rsplit(')').next().expect("stat").split_whitespace().collect();
    fields[11].parse::<u64>().expect("utime") + fields[12].parse::<u64>().expect("stime")
}

async fn run(io: Io, arguments: Vec<String>) {
    let address = match arguments[0].parse() {
        Ok(address) => Address::Tcp(address),
        Err(_) => Address::Unix(arguments[0].clone().into()),
    };
    let number = |index: usize| arguments[index].parse::<u32>().expect("a number");
    let done = Rc::new(Cell::new(0));
    for _ in 0..number(2) {
        let stream = io.connect(&address).await.expect("a server");
        io.spawn("load", drive(stream, number(3), done.clone()));
    }
    io.sleep(Duration::from_millis(300)).await;
    let (ticks, requests, start) = (cpu_ticks(&arguments[1]), done.get(), io.now());
    io.sleep(Duration::from_secs(u64::from(number(4)))).await;
    let (ticks, requests) = (cpu_ticks(&arguments[1]) - ticks, done.get() - requests);
    let seconds = (io.now() - start).as_secs_f64();
    let per_s = requests as f64 / seconds;
    let cpu_us = ticks as f64 * 10_000.0 / requests as f64;
    println!("{per_s:.0} requests/s, server CPU {cpu_us:.2} us each");
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (driver, _) = driver(Engine::Auto, 2).expect("a driver");
    let executor = Executor::new(driver);
    let io = executor.io();
    executor.run(run(io, arguments));
}
