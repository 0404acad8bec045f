//! Very many clients that are connected, watch and hear nothing: what they cost the server's memory
//! and the client that is busy.

use std::io;
use std::net::Ipv4Addr;
use std::time::Instant;

use bytes::Bytes;
use prost::Message;
use ringbolt_proto::etcdserverpb::{WatchCreateRequest, WatchRequest, watch_request::RequestUnion};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::limits::{CROWD_BYTES_MAX, FILES_BESIDE_CROWD};
use crate::lists::floor;
use crate::server::Server;
use crate::strain::{Fact, QUIET_S, quiet_for, slower};
use crate::wire::{Connection, Target, head};

/// Each address of the loopback network has ports of its own: with several, those of one do not run
/// out.
const SOURCES: u8 = 8;

/// Starts the server, connects and looks at both. Half of the clients use TCP, half a Unix socket;
/// each has one watcher of a key of its own.
pub fn idle_connections(server: &mut Server, connections: usize) -> io::Result<Vec<Fact>> {
    let name = format!("idle connections ({connections}, a watcher each)");
    if let Err(why) = make_room(connections) {
        return Ok(vec![(name, why)]);
    }
    // The server inherits the limit of open files.
    server.start()?;
    let target = server.unix();
    let quiet = quiet_for(&target, QUIET_S)?;
    let before = server.resident_bytes()?;
    let began = Instant::now();
    let crowd = connect(server, connections)?;
    let took = began.elapsed().as_secs_f64();
    let beside = quiet_for(&target, QUIET_S)?;
    let resident = server.resident_bytes()?;
    let closed = closed(&crowd)?;
    if closed > 0 {
        let what =
            format!("{closed} of {connections} idle clients were hung up on, or told things");
        return Err(io::Error::other(what));
    }
    let memory = format!(
        "{} MB resident, {} MB before, {}; connected in {took:.1} s",
        resident / 1_000_000,
        before / 1_000_000,
        floor(resident <= CROWD_BYTES_MAX, &format!("{} MB", CROWD_BYTES_MAX / 1_000_000))
    );
    let p50 = slower(&name, ("p50", 0.5), &quiet, &beside).0;
    let p99 = slower(&name, ("p99", 0.99), &quiet, &beside).0;
    Ok(vec![(format!("{name}: server memory"), memory), p50, p99])
}

/// Raises the limit of open files as far as it is needed, for this process and the server.
fn make_room(connections: usize) -> Result<(), String> {
    let needed = u64::try_from(connections).unwrap_or(u64::MAX).saturating_add(FILES_BESIDE_CROWD);
    let limit = getrlimit(Resource::Nofile);
    let hard = limit.maximum.unwrap_or(u64::MAX);
    if limit.current.unwrap_or(u64::MAX) >= needed {
        return Ok(());
    }
    let more = Rlimit { current: Some(needed), maximum: Some(hard.max(needed)) };
    setrlimit(Resource::Nofile, more).map_err(|error| too_few_files(needed, hard, &error))
}

fn too_few_files(needed: u64, hard: u64, error: &dyn std::fmt::Display) -> String {
    format!(
        "NOT MEASURED: {needed} open files are needed, the hard limit is {hard} ({error}); allow \
         them with `sudo prlimit --pid $$ --nofile={needed}:{needed}` and measure again from this \
         shell, or take fewer with `--connections {}`",
        hard.saturating_sub(FILES_BESIDE_CROWD)
    )
}

/// Connects them one after the other; each watcher is there when the next one comes.
fn connect(server: &Server, connections: usize) -> io::Result<Vec<OwnedFd>> {
    let Target::Tcp(address) = server.tcp() else { unreachable!("the TCP endpoint") };
    let head = head("/etcdserverpb.Watch/Watch");
    (0..connections)
        .map(|index| {
            let mut connection = if index % 2 == 0 {
                Connection::open_from(source(index / 2), &address)?
            } else {
                Connection::open(&server.unix())?
            };
            watch(&mut connection, &head, index)?;
            Ok(connection.into_fd())
        })
        .collect()
}

/// The addresses take turns.
fn source(index: usize) -> Ipv4Addr {
    let turn = u8::try_from(index % usize::from(SOURCES)).expect("fewer than 256 addresses");
    Ipv4Addr::new(127, 0, 0, 2 + turn)
}

fn watch(connection: &mut Connection, head: &[u8], index: usize) -> io::Result<()> {
    let key = Bytes::from(format!("/idle/{index:06}"));
    let create = WatchCreateRequest { key, ..WatchCreateRequest::default() };
    let request = WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) };
    connection.answer_each_message();
    let stream = connection.open_stream(head);
    connection.send_message(stream, &request.encode_to_vec());
    connection.flush()?;
    let mut answers = Vec::new();
    while answers.is_empty() {
        connection.receive(&mut answers)?;
    }
    if answers[0].message.is_empty() {
        return Err(io::Error::other(format!("watcher {index}: {:?}", answers[0].complaint)));
    }
    connection.flush()
}

/// How many clients were told something since: nobody has reason to.
fn closed(crowd: &[OwnedFd]) -> io::Result<usize> {
    let mut closed = 0;
    for client in crowd {
        let mut ready = [PollFd::new(client, PollFlags::IN)];
        closed += poll(&mut ready, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
    }
    Ok(closed)
}

#[cfg(test)]
mod tests {
    use super::{source, too_few_files};

    /// No address has to give a port to more than its share of the clients.
    #[test]
    fn the_crowd_comes_from_eight_addresses_in_turns() {
        let mut counts = std::collections::HashMap::new();
        for index in 0..9500 {
            *counts.entry(source(index)).or_insert(0) += 1;
        }
        assert_eq!(counts.len(), 8);
        assert!(counts.values().all(|count| *count <= 1188), "{counts:?}");
        assert!(counts.keys().all(|address| address.is_loopback()));
    }

    /// Whoever has too few files is told the next command.
    #[test]
    fn too_few_open_files_name_the_next_command() {
        let text = too_few_files(19_256, 4096, &"not permitted");
        assert!(text.contains("--nofile=19256:19256") && text.contains("--connections 3840"));
    }
}
