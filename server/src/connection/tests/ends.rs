//! How calls and connections end early.

use std::time::Duration;

use super::setting;
use crate::grpc::Code;
use crate::http2::frame::kind;
use crate::limits::HEADS_PER_CONNECTION_BYTES_MAX;

/// A deadline that passes ends the call from the server's side, and the service hears of it.
#[test]
fn deadline() {
    let setting = setting();
    let seen = setting.seen.clone();
    setting.run(|client| async move {
        let mut client = client.hello();
        client.call(1, "KV/Txn", &[("grpc-timeout", "300m")]);
        client.message(1, b"", true);
        client.call(3, "KV/Txn", &[("grpc-timeout", "100m")]);
        client.message(3, b"", true);
        client.call(5, "KV/DeleteRange", &[("grpc-timeout", "10S")]);
        client.message(5, b"", true);
        let start = client.io.now();
        for (stream, earliest_ms) in [(3, 99), (1, 299)] {
            let answer = client.answer(stream).await;
            assert_eq!(answer.status(), ("4", "context deadline exceeded"));
            let waited = client.io.now() - start;
            assert!(waited > Duration::from_millis(earliest_ms), "{waited:?}");
            assert!(waited < Duration::from_millis(earliest_ms + 50), "{waited:?}");
        }
        assert_eq!(client.answer(5).await.status().0, "0");
    });
    assert_eq!(*seen.gone.borrow(), [Code::DeadlineExceeded; 2]);
}

/// A deadline covers a request that never becomes whole, too.
#[test]
fn deadline_before_the_message() {
    setting().run(|client| async move {
        let mut client = client.hello();
        client.call(1, "KV/Put", &[("grpc-timeout", "100m")]);
        client.frame(kind::DATA, 0, 1, b"\0\0");
        assert_eq!(client.answer(1).await.status().0, "4");
    });
}

/// A reset by the client ends its call and no other.
#[test]
fn reset() {
    let setting = setting();
    let seen = setting.seen.clone();
    setting.run(|client| async move {
        let mut client = client.hello();
        for stream in [1, 3] {
            client.call(stream, "KV/Txn", &[("grpc-timeout", "500m")]);
            client.message(stream, b"", true);
        }
        client.flush().await;
        client.io.sleep(Duration::from_millis(10)).await;
        client.frame(kind::RST_STREAM, 0, 1, &[0, 0, 0, 8]);
        // Opened and reset in one breath: the service never sees it.
        client.call(5, "KV/Txn", &[]);
        client.message(5, b"", true);
        client.frame(kind::RST_STREAM, 0, 5, &[0, 0, 0, 8]);
        assert_eq!(client.answer(3).await.status().0, "4");
    });
    assert_eq!(*seen.gone.borrow(), [Code::Canceled, Code::DeadlineExceeded]);
}

/// A connection that breaks takes all its calls along: those that wait, stream or pull.
#[test]
fn lost_connection() {
    let setting = setting();
    let seen = setting.seen.clone();
    setting.run(|client| async move {
        let mut client = client.hello();
        client.call(1, "KV/Txn", &[]);
        client.message(1, b"", true);
        client.call(3, "Watch/Watch", &[]);
        client.call(5, "KV/RangeStream", &[]);
        client.message(5, b"", true);
        client.until(|client| client.answers.contains_key(&5)).await;
    });
    assert_eq!(*seen.gone.borrow(), [Code::Canceled; 2]);
}

/// Asked to go, the server serves what is open, refuses nothing it admitted, and closes.
#[test]
fn graceful_shut_down() {
    let setting = setting();
    let connections = setting.connections.clone();
    setting.run(move |client| async move {
        let mut client = client.hello();
        client.call(1, "KV/DeleteRange", &[]);
        client.message(1, b"served", true);
        client.flush().await;
        client.io.sleep(Duration::from_millis(10)).await;
        connections.borrow()[0].shut_down();
        assert_eq!(client.answer(1).await.messages(), [b"served"]);
        client.until_closed().await;
        assert_eq!(client.goaways, [0, 0]);
    });
}

/// A broken rule is told before the connection closes.
#[test]
fn protocol_error() {
    setting().run(|client| async move {
        let mut client = client.hello();
        client.frame(kind::DATA, 0, 7, b"");
        client.until_closed().await;
        assert_eq!(client.goaways, [1]);
    });
}

/// HTTP/1 goes to the web with every byte that was read; anything else is closed unanswered.
#[test]
fn other_protocols() {
    for (text, expected) in [
        ("GET /health HTTP/1.1\r\nHost: x\r\n\r\n", &b"HTTP/1.1 200 OK\r\n\r\n"[..]),
        ("PRO\r\n", b""),
    ] {
        let setting = setting();
        let seen = setting.seen.clone();
        setting.run(move |mut client| async move {
            client.out.extend_from_slice(text.as_bytes());
            client.flush().await;
            let mut all = Vec::new();
            loop {
                let (outcome, buffer) = client.stream.read(all).await;
                all = buffer;
                if !matches!(outcome, Ok(size) if size > 0) {
                    break;
                }
            }
            assert_eq!(all, expected);
        });
        let passed_on = if expected.is_empty() { "" } else { text };
        assert_eq!(*seen.http1.borrow(), passed_on.as_bytes());
    }
}

/// Open calls with large heads, none of which is remembered: above the limit they are refused one
/// by one, and what is charged is what is held.
#[test]
fn large_heads_of_open_calls() {
    let setting = setting();
    let connections = setting.connections.clone();
    setting.run(move |client| async move {
        let mut client = client.hello();
        let count = HEADS_PER_CONNECTION_BYTES_MAX / 15_000 + 20;
        for index in 0..u32::try_from(count).expect("small") {
            let value = format!("{index:015000}");
            client.call(1 + 2 * index, "KV/Put", &[("x-large", &value)]);
            if index % 50 == 0 {
                client.flush().await;
            }
        }
        let refused = 1 + 2 * u32::try_from(count - 1).expect("small");
        assert_eq!(client.answer(refused).await.reset, Some(11));
        let open = connections.borrow()[0].calls_open();
        assert!((count - 40..count).contains(&open), "{open} of {count}");
    });
}
