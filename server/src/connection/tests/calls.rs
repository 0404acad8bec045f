//! Calls and their answers.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::{HUGE, MESSAGE_BYTES_MAX, setting};
use crate::grpc::framing::prefix;
use crate::http2::StreamId;
use crate::http2::frame::{flag, kind, put_window_update};

/// Unary calls answered at once and later, on one connection, each with its own message.
#[test]
fn unary() {
    setting().run(|client| async move {
        let mut client = client.hello();
        client.call(1, "KV/DeleteRange", &[]);
        client.message(1, b"later", true);
        client.call(3, "KV/Put", &[]);
        client.message(3, b"now", true);
        let now = client.answer(3).await;
        assert!(!client.answers.contains_key(&1));
        let later = client.answer(1).await;
        for (answer, message) in [(now, &b"now"[..]), (later, b"later")] {
            assert_eq!(answer.messages(), [message]);
            let expected = [
                ":status: 200",
                "content-type: application/grpc",
                "grpc-status: 0",
                "grpc-message: ",
            ];
            assert_eq!(answer.fields, expected);
        }
    });
}

/// Errors are trailers only: one block, percent-encoded, with the code.
#[test]
fn errors() {
    setting().run(|client| async move {
        let mut client = client.hello();
        for (stream, path, code, message) in [
            (1, "KV/Range", "5", "50%25 of it"),
            (3, "KV/Compact", "13", "the call was dropped without an answer"),
            (5, "KV/Rang", "12", "unknown method Rang for service etcdserverpb.KV"),
            (7, "Nothing/Range", "12", "unknown service etcdserverpb.Nothing"),
        ] {
            client.call(stream, path, &[]);
            client.message(stream, b"", true);
            let answer = client.answer(stream).await;
            assert_eq!(answer.status(), (code, message));
            assert_eq!((answer.get(":status"), answer.data.len()), (Some("200"), 0));
        }
        client.call(9, "KV/Put", &[("grpc-encoding", "snappy")]);
        client.message(9, b"", true);
        assert_eq!(client.answer(9).await.get("grpc-accept-encoding"), Some("gzip"));
        for (stream, begun, status) in
            [(11, &b""[..], "13"), (13, b"\0\0", "2"), (15, b"\0\0\0\0\x03ab", "2")]
        {
            client.call(stream, "KV/Put", &[]);
            client.frame(kind::DATA, flag::END_STREAM, stream, begun);
            assert_eq!(client.answer(stream).await.status().0, status);
        }
        client.call(17, "KV/RangeStream", &[]);
        client.message(17, b"one", false);
        client.message(17, b"two", true);
        assert_eq!(client.answer(17).await.status().0, "13");
    });
}

/// The content type of the request comes back; the token is found in either field.
#[test]
fn metadata() {
    let setting = setting();
    let seen = setting.seen.clone();
    setting.run(|client| async move {
        let mut client = client.hello();
        let path = "/etcdserverpb.KV/Put";
        let proto = ("content-type", "application/grpc+proto");
        client.head(1, path, &[proto, ("token", "abc")], false);
        client.message(1, b"x", true);
        assert_eq!(client.answer(1).await.get("content-type"), Some(proto.1));
        client.head(3, path, &[proto, ("authorization", "Bearer def")], false);
        client.message(3, b"x", true);
        client.answer(3).await;
    });
    assert_eq!(*seen.metadata.borrow(), ["abc", "def"]);
}

/// A message at the limit passes, one above it is refused with both numbers before it was sent.
#[test]
fn message_limit() {
    setting().run(|client| async move {
        let mut client = client.hello().wide();
        client.call(1, "KV/Put", &[]);
        let largest = vec![5; MESSAGE_BYTES_MAX];
        let mut rest = &[&prefix(largest.len())[..], &largest].concat()[..];
        while !rest.is_empty() {
            // A client that keeps to 16 KiB at a time, so that the window is never exceeded.
            let (now, later) = rest.split_at(rest.len().min(16_384));
            let end = if later.is_empty() { flag::END_STREAM } else { 0 };
            client.frame(kind::DATA, end, 1, now);
            client.flush().await;
            client.io.sleep(std::time::Duration::from_millis(5)).await;
            rest = later;
        }
        assert_eq!(client.answer(1).await.messages(), [&largest[..]]);
        client.call(3, "KV/Put", &[]);
        client.frame(kind::DATA, 0, 3, &prefix(MESSAGE_BYTES_MAX + 1));
        let answer = client.answer(3).await;
        let text = "grpc: received message larger than max (100001 vs. 100000)";
        assert_eq!(answer.status(), ("8", text));
    });
}

/// Requests may be compressed; answers are not.
#[test]
fn gzip() {
    setting().run(|client| async move {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(&[8; 5_000]).unwrap();
        let packed = encoder.finish().unwrap();
        let mut head = prefix(packed.len());
        head[0] = 1;
        let mut client = client.hello();
        client.call(1, "KV/Put", &[("grpc-encoding", "gzip")]);
        client.frame(kind::DATA, flag::END_STREAM, 1, &[&head[..], &packed].concat());
        assert_eq!(client.answer(1).await.messages(), [&[8; 5_000][..]]);
        client.call(3, "KV/Put", &[]);
        client.frame(kind::DATA, flag::END_STREAM, 3, &[&head[..], &packed].concat());
        assert_eq!(client.answer(3).await.status().0, "13");
    });
}

/// Messages of a stream come back one by one, and half-close ends it well.
#[test]
fn stream() {
    setting().run(|client| async move {
        let mut client = client.hello();
        client.call(1, "Watch/Watch", &[]);
        for index in 0..20_u8 {
            client.message(1, &[index; 300], false);
            let count = usize::from(index) + 1;
            client
                .until(|client| {
                    client.answers.get(&1).is_some_and(|answer| answer.data.len() == 305 * count)
                })
                .await;
        }
        client.message(1, b"last", true);
        let answer = client.answer(1).await;
        assert_eq!((answer.messages().len(), answer.status().0), (21, "0"));
    });
}

/// A client that stops reading a stream stops it from being read: nothing piles up.
#[test]
fn stream_backpressure() {
    setting().run(|client| async move {
        let mut client = client.hello();
        client.call(1, "Watch/Watch", &[]);
        // 64 KiB of answers fill the client's window; the rest waits, first in the stream's queue,
        // then unread in the inbox, and the stream's receive window closes.
        for _ in 0..12 {
            client.message(1, &[1; 16_000], false);
            client.flush().await;
            client.io.sleep(std::time::Duration::from_millis(5)).await;
        }
        client
            .until(|client| {
                client
                    .answers
                    .get(&1)
                    .is_some_and(|answer| answer.data.len() == 65_535 || answer.reset.is_some())
            })
            .await;
        put_window_update(&mut client.out, StreamId(1), 1_000_000);
        put_window_update(&mut client.out, StreamId(0), 1_000_000);
        client.frame(kind::DATA, flag::END_STREAM, 1, b"");
        let answer = client.answer(1).await;
        assert_eq!((answer.messages().len(), answer.status().0), (12, "0"));
    });
}

/// A huge answer is pulled as the client takes it, and arrives whole.
#[test]
fn huge_answer() {
    let setting = setting();
    let seen = setting.seen.clone();
    setting.run(move |client| async move {
        let mut client = client.hello();
        client.call(1, "KV/RangeStream", &[]);
        client.message(1, b"", true);
        client
            .until(|client| {
                client.answers.get(&1).is_some_and(|answer| answer.data.len() == 65_535)
            })
            .await;
        client.io.sleep(std::time::Duration::from_millis(100)).await;
        assert!(seen.pulled.get() < 300_000, "{} bytes pulled ahead", seen.pulled.get());
        put_window_update(&mut client.out, StreamId(1), 0x1000_0000);
        put_window_update(&mut client.out, StreamId(0), 0x1000_0000);
        let answer = client.answer(1).await;
        assert_eq!(answer.data.len(), HUGE + 5);
        assert_eq!(answer.messages().len(), 1);
        assert_eq!(answer.status().0, "0");
    });
}

/// What is not gRPC goes to the web, with its body.
#[test]
fn web_over_http2() {
    setting().run(|client| async move {
        let mut client = client.hello();
        client.head(1, "/v3/kv/range", &[("content-type", "application/json")], false);
        client.frame(kind::DATA, 0, 1, b"{\"key\"");
        client.frame(kind::DATA, flag::END_STREAM, 1, b":1}");
        let answer = client.answer(1).await;
        assert_eq!(answer.fields, [":status: 200", "content-type: text/plain"]);
        assert_eq!(answer.data, b"{\"key\":1}");
        client.head(3, "/health", &[], true);
        assert_eq!(client.answer(3).await.get(":status"), Some("200"));
    });
}

/// Where only gRPC is served, anything else is refused as etcd refuses it.
#[test]
fn no_web() {
    let mut setting = setting();
    setting.with_web = false;
    setting.run(|client| async move {
        let mut client = client.hello();
        client.head(1, "/health", &[("content-type", "text/plain")], true);
        let answer = client.answer(1).await;
        assert_eq!(answer.get(":status"), Some("415"));
        let text = "invalid gRPC request content-type \"text/plain\"";
        assert_eq!(answer.status(), ("3", text));
    });
}
