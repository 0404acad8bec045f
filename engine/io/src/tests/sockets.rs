//! Sockets: streams in both directions, ends and resets, cancelled waits, listeners of each kind.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use bytes::Bytes;

use super::over_each;
use crate::exec::Io;
use crate::net::{Address, ListenHow, Stream};

const PATIENCE: Duration = Duration::from_secs(30);

fn local() -> Address {
    Address::Tcp("127.0.0.1:0".parse().unwrap())
}

fn plain() -> ListenHow {
    ListenHow::default()
}

async fn pair(io: &Io, address: &Address) -> (Stream, Stream) {
    let listener = io.listen(address, &plain()).unwrap();
    let client = io.connect(listener.address()).await.unwrap();
    let (server, _) = listener.accept().await.unwrap();
    (client, server)
}

async fn read_all(stream: &Stream) -> Vec<u8> {
    let mut all = Vec::new();
    loop {
        let (count, back) = stream.read(all).await;
        all = back;
        if count.unwrap() == 0 {
            return all;
        }
    }
}

fn pattern(seed: u32, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at as u32).wrapping_mul(2_654_435_761).wrapping_add(seed) as u8).collect()
}

/// Writes `bytes` in slices of odd sizes, several per send.
async fn write_pieces(stream: &Stream, bytes: &Bytes) {
    for part in bytes.chunks(777_777) {
        let slices = part.chunks(4_099).map(|slice| bytes.slice_ref(slice)).collect();
        stream.write(slices).await.unwrap();
    }
}

/// 20 MB each way at the same time arrive whole and in order, over each kind of socket.
#[test]
fn big_transfers_both_ways() {
    over_each(|io, directory| async move {
        let name = format!("ringbolt-test-{}-{:?}", std::process::id(), io.engine_name());
        let kinds =
            [local(), Address::Unix(directory.join("s")), Address::Abstract(name.into_bytes())];
        for address in kinds {
            let (client, server) = pair(&io, &address).await;
            let (up, down) =
                (Bytes::from(pattern(1, 20_000_000)), Bytes::from(pattern(2, 20_000_000)));
            let writers = [(client.clone(), up.clone()), (server.clone(), down.clone())];
            let reader = server.clone();
            let expected = up.clone();
            let reading = io.spawn("reader", async move {
                let mut all = Vec::new();
                while all.len() < expected.len() {
                    let (count, back) = reader.read(all).await;
                    all = back;
                    assert!(count.unwrap() > 0);
                }
                assert!(all == expected);
            });
            let writing = writers.map(|(stream, bytes)| {
                io.spawn("writer", async move { write_pieces(&stream, &bytes).await })
            });
            let mut all = Vec::new();
            while all.len() < down.len() {
                let (count, back) = client.read(all).await;
                all = back;
                assert!(count.unwrap() > 0);
            }
            assert!(all == down);
            reading.await;
            for writer in writing {
                writer.await;
            }
        }
    });
}

/// After the peer has closed its sending half we read the end, and it still hears us.
#[test]
fn half_closed_peer_still_hears() {
    over_each(|io, directory| async move {
        let path = directory.join("s");
        let listener = io.listen(&Address::Unix(path.clone()), &plain()).unwrap();
        let peer = std::thread::spawn(move || {
            let mut stream = UnixStream::connect(path).unwrap();
            stream.write_all(b"question").unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer
        });
        let (stream, peer_info) = listener.accept().await.unwrap();
        let (process, user, group) = peer_info.credentials.unwrap();
        assert_eq!(u32::try_from(process).unwrap(), std::process::id());
        assert_eq!(user, rustix::process::getuid().as_raw());
        assert_eq!(group, rustix::process::getgid().as_raw());
        assert_eq!(read_all(&stream).await, b"question");
        stream.write(vec![Bytes::from_static(b"ans"), Bytes::from_static(b"wer")]).await.unwrap();
        drop(stream);
        assert_eq!(peer.join().unwrap(), "answer");
    });
}

/// A peer that resets ends the read with an error or the end, and writes fail soon.
#[test]
fn reset_peers_are_noticed() {
    over_each(|io, _| async move {
        let (client, server) = pair(&io, &local()).await;
        // Unread bytes at close make the kernel send a reset.
        server.write(vec![Bytes::from_static(b"unread")]).await.unwrap();
        let (count, _) = client.read(Vec::new()).await;
        assert_eq!(count.unwrap(), 6);
        client.write(vec![Bytes::from_static(b"lost")]).await.unwrap();
        server.write(vec![Bytes::from_static(b"more")]).await.unwrap();
        drop(server);
        let (mut count, mut into) = client.read(Vec::new()).await;
        while count.as_ref().is_ok_and(|count| *count > 0) {
            (count, into) = client.read(into).await;
        }
        let reset = count.unwrap_err();
        assert_eq!(reset.kind(), ErrorKind::ConnectionReset);
        let error = client.write(vec![Bytes::from_static(b"x")]).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset));
    });
}

/// A read that was given up does not swallow the bytes that come later.
#[test]
fn a_cancelled_read_loses_nothing() {
    over_each(|io, _| async move {
        let (client, server) = pair(&io, &local()).await;
        for round in 0..50u32 {
            let wait = Duration::from_micros(u64::from(round) * 20);
            assert!(io.timeout(wait, client.read(Vec::new())).await.is_none());
        }
        let sent = pattern(3, 100_000);
        let bytes = Bytes::from(sent.clone());
        let writer = server.clone();
        let writing = io.spawn("writer", async move {
            for part in bytes.chunks(1000) {
                writer.write(vec![bytes.slice_ref(part)]).await.unwrap();
            }
            drop(writer);
        });
        drop(server);
        let mut all = Vec::new();
        while all.len() < sent.len() {
            let (count, back) = client.read(all).await;
            all = back;
            assert!(count.unwrap() > 0);
        }
        writing.await;
        assert!(all == sent);
        assert_eq!(client.read(Vec::new()).await.0.unwrap(), 0);
    });
}

/// Our own shutdown ends a pending read, and the peer sees the end.
#[test]
fn shutdown_ends_both_sides() {
    over_each(|io, directory| async move {
        let (client, server) = pair(&io, &Address::Unix(directory.join("s"))).await;
        let ender = client.clone();
        let handle = io.clone();
        let ending = io.spawn("ender", async move {
            handle.sleep(Duration::from_millis(5)).await;
            ender.shutdown();
        });
        assert_eq!(client.read(Vec::new()).await.0.unwrap(), 0);
        assert_eq!(server.read(Vec::new()).await.0.unwrap(), 0);
        ending.await;
        assert!(client.write(vec![Bytes::from_static(b"x")]).await.is_err());
    });
}

/// A receiver that does not read stops the sender; when it reads everything arrives.
#[test]
fn a_slow_reader_holds_the_writer() {
    over_each(|io, directory| async move {
        let (client, server) = pair(&io, &Address::Unix(directory.join("s"))).await;
        let bytes = Bytes::from(pattern(4, 8 << 20));
        let sent = bytes.clone();
        let writing = io.spawn("writer", async move {
            client.write(vec![sent]).await.unwrap();
        });
        io.sleep(Duration::from_millis(50)).await;
        assert!(!writing.is_finished());
        assert!(read_all(&server).await == bytes);
        writing.await;
    });
}

/// A socket file is made with the mode asked for, and removed with its listener.
#[test]
fn socket_files_have_modes_and_go() {
    over_each(|io, directory| async move {
        let path = directory.join("s");
        let owner = Some(rustix::process::getuid().as_raw());
        let how =
            ListenHow { socket_mode: Some(0o640), socket_owner: Some((owner, None)), ..plain() };
        let listener = io.listen(&Address::Unix(path.clone()), &how).unwrap();
        let metadata = std::fs::metadata(&path).unwrap();
        assert!(metadata.file_type().is_socket());
        assert_eq!(metadata.permissions().mode() & 0o777, 0o640);
        drop(listener);
        assert!(!path.exists());
    });
}

/// A socket file that nobody listens on is replaced. A live one is not, nor a file of another
/// kind; a file that somebody else put in our place stays when we close.
#[test]
fn stale_sockets_are_replaced_live_ones_not() {
    over_each(|io, directory| async move {
        let path = directory.join("s");
        let address = Address::Unix(path.clone());
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let listener = io.listen(&address, &plain()).unwrap();
        let error = io.listen(&address, &plain()).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
        io.connect(&address).await.unwrap();
        std::fs::remove_file(&path).unwrap();
        let other = UnixListener::bind(&path).unwrap();
        drop(listener);
        assert!(path.exists());
        drop(other);
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "precious").unwrap();
        let error = io.listen(&address, &plain()).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    });
}

/// A port in use is an error, unless both sides share it; nobody there is a refusal.
#[test]
fn ports_in_use_and_refused() {
    over_each(|io, directory| async move {
        let first = io.listen(&local(), &plain()).unwrap();
        let error = io.listen(first.address(), &plain()).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
        let shared = ListenHow { reuse_port: true, ..plain() };
        let one = io.listen(&local(), &shared).unwrap();
        let _two = io.listen(one.address(), &shared).unwrap();
        let address = first.address().clone();
        drop(first);
        let error = io.connect(&address).await.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        let error = io.connect(&Address::Unix(directory.join("none"))).await.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::NotFound);
    });
}

/// An accept that was given up takes no connection with it.
#[test]
fn a_cancelled_accept_loses_no_connection() {
    over_each(|io, directory| async move {
        let listener = io.listen(&Address::Unix(directory.join("s")), &plain()).unwrap();
        assert!(io.timeout(Duration::from_millis(5), listener.accept()).await.is_none());
        let address = listener.address().clone();
        let clients: Vec<_> = (0..200)
            .map(|number: u32| {
                let (io, address) = (io.clone(), address.clone());
                io.clone().spawn("client", async move {
                    let stream = io.connect(&address).await.unwrap();
                    let bytes = Bytes::copy_from_slice(&number.to_le_bytes());
                    stream.write(vec![bytes]).await.unwrap();
                    assert_eq!(read_all(&stream).await, number.to_le_bytes());
                })
            })
            .collect();
        for _ in 0..200 {
            let (stream, _) = io.timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
            let (count, bytes) = stream.read(Vec::new()).await;
            assert_eq!(count.unwrap(), 4);
            stream.write(vec![Bytes::from(bytes)]).await.unwrap();
        }
        for client in clients {
            client.await;
        }
    });
}
