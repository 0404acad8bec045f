//! What is no HTTP/2: garbage, two meanings of one HTTP/1.1 request, and clients that take their
//! time with every byte, in both directions.

use std::io::ErrorKind;
use std::thread::sleep;
use std::time::Duration;

use super::Attack;
use super::server::Server;
use super::wire::Wire;

const END_TIME: Duration = Duration::from_secs(5);

/// The attacks of this file.
#[must_use]
pub fn attacks() -> Vec<Attack> {
    let attack = Attack::small;
    vec![
        attack("garbage", "REQUEST_LINE_BYTES_MAX", garbage),
        attack("smuggling", "one body length, or 400 or 501 and the end", smuggling),
        attack("slow-loris", "FIRST_BYTES_TIME_MAX, REQUEST_TIME_MAX", slow_loris),
        // 50 clients, half a megabyte of answers each, and what an allocator makes of it.
        slow_reader_attack(),
    ]
}

fn slow_reader_attack() -> Attack {
    Attack {
        name: "slow-reader",
        limit: "OUTPUT_STOPS_READING_BYTES",
        growth_bytes_max: 160 << 20,
        fills_budget: false,
        run: slow_reader,
    }
}

/// Everything the server says until it closes.
fn until_closed(wire: &mut Wire) -> Result<String, String> {
    let mut all = Vec::new();
    loop {
        match wire.read_some(END_TIME) {
            Ok(Some(bytes)) => all.extend(bytes),
            Ok(None) | Err(ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => break,
            Err(kind) => return Err(format!("the connection stays open ({kind})")),
        }
    }
    Ok(String::from_utf8_lossy(&all).into_owned())
}

fn garbage(server: &Server) -> Result<String, String> {
    let noise: Vec<u8> = (0..20_000_u32).map(|index| (index * 7 % 251).to_le_bytes()[0]).collect();
    let cases: [&[u8]; 5] = [
        &noise,
        b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n",
        b"GARBAGE\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        &[b'A'; 20_000],
    ];
    for (index, bytes) in cases.iter().enumerate() {
        for tcp in [false, true] {
            let mut wire = if tcp { Wire::connect_tcp(server)? } else { Wire::connect(server)? };
            wire.out.extend(*bytes);
            // The rest of a TLS hello never comes; a line end decides.
            wire.out.extend(b"\r\n");
            let _closed_already = wire.flush();
            let answer =
                until_closed(&mut wire).map_err(|error| format!("case {index}: {error}"))?;
            if answer.contains(" 200 ") {
                return Err(format!("case {index} was served: {answer}"));
            }
        }
    }
    Ok(format!("{} kinds of garbage, each closed", cases.len()))
}

/// Requests whose end two readers would see in different places. Behind each stands a second one
/// that must never be answered.
fn smuggling(server: &Server) -> Result<String, String> {
    let hidden = "GET /version HTTP/1.1\r\nHost: x\r\n\r\n";
    let heads = [
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Content-Length: 5, 6\r\n",
        "Content-Length: +5\r\n",
        "Content-Length: 0x5\r\n",
        "Content-Length : 5\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "X: a\r\n Content-Length: 5\r\n",
        "X: a\rContent-Length: 5\r\n",
    ];
    for head in heads {
        let mut wire = Wire::connect_tcp(server)?;
        let first = format!("POST /health HTTP/1.1\r\nHost: x\r\n{head}\r\n0\r\n\r\n");
        wire.out.extend(first.as_bytes());
        wire.out.extend(hidden.as_bytes());
        wire.flush()?;
        let answer = until_closed(&mut wire).map_err(|error| format!("{head:?}: {error}"))?;
        let count = answer.matches("HTTP/1.1 ").count();
        let refused = answer.starts_with("HTTP/1.1 400 ") || answer.starts_with("HTTP/1.1 501 ");
        if count > 1 || answer.contains("etcdserver") || !refused {
            return Err(format!("{head:?} was answered {count} times: {answer}"));
        }
    }
    // A request for HTTP/2 in the middle of HTTP/1.1 is one more wrong request.
    let mut wire = Wire::connect_tcp(server)?;
    wire.out.extend(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\nPRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    wire.flush()?;
    let answer = until_closed(&mut wire)?;
    if answer.matches("HTTP/1.1 ").count() != 2 {
        return Err(format!("HTTP/2 in the middle of HTTP/1.1: {answer}"));
    }
    Ok(format!("{} heads of two meanings: 400 or 501, and the end", heads.len()))
}

/// 600 clients that have sent half of something and add a byte now and then.
fn slow_loris(server: &Server) -> Result<String, String> {
    let beginnings: [&[u8]; 4] = [
        b"P",
        b"GET /hea",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0",
        b"POST /v3/kv/put HTTP/1.1\r\n",
    ];
    let mut wires = Vec::new();
    for index in 0..600 {
        let mut wire = Wire::connect(server)?;
        wire.out.extend(beginnings[index % beginnings.len()]);
        wire.flush()?;
        wires.push(wire);
    }
    for _ in 0..5 {
        sleep(Duration::from_millis(300));
        for wire in &mut wires {
            wire.out.push(b'X');
            // One whose next byte was wrong is closed by now.
            let _closed_already = wire.flush();
        }
    }
    Ok(format!("{} half requests held", wires.len()))
}

/// Clients that ask ten thousand times and read nothing.
fn slow_reader(server: &Server) -> Result<String, String> {
    let mut wires = Vec::new();
    for _ in 0..50 {
        let mut wire = Wire::wide(server)?;
        wire.write_time(Duration::from_millis(100))?;
        let mut sent = 0;
        for index in 0..10_000_u32 {
            wire.call(index * 2 + 1, "grpc.health.v1.Health/Check", &[]);
            wire.message(index * 2 + 1, b"", true);
            // The server has stopped reading: that is what bounds it.
            if index % 100 == 99 && wire.flush().is_err() {
                break;
            }
            sent += 1;
        }
        wires.push((wire, sent));
    }
    let taken: u32 = wires.iter().map(|(_, sent)| sent).sum();
    Ok(format!("{taken} of 500 000 calls were taken from clients that do not read"))
}
