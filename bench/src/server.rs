//! Starting and stopping the servers that are measured.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use prost::Message;
use ringbolt_proto::etcdserverpb::{RangeRequest, RangeResponse};

use crate::limits::READY_S_MAX;
use crate::wire::{Connection, Target, head};

/// A server under measurement, with its data directory. Killed when dropped.
pub struct Server {
    binary: PathBuf,
    directory: PathBuf,
    port: u16,
    /// Beside those that both servers are given.
    flags: Vec<String>,
    child: Option<Child>,
}

impl Server {
    /// A server that is not started yet. Its data goes below `directory`.
    pub fn new(binary: &Path, directory: &Path, port: u16) -> io::Result<Server> {
        let _ = std::fs::remove_dir_all(directory);
        std::fs::create_dir_all(directory)?;
        let (binary, directory) = (binary.canonicalize()?, directory.canonicalize()?);
        Ok(Server { binary, directory, port, flags: Vec::new(), child: None })
    }

    /// With one more flag.
    pub fn with(mut self, flag: &str) -> Server {
        self.flags.push(flag.to_owned());
        self
    }

    /// The TCP endpoint.
    pub fn tcp(&self) -> Target {
        Target::Tcp(format!("127.0.0.1:{}", self.port))
    }

    /// The Unix endpoint.
    pub fn unix(&self) -> Target {
        Target::Unix(self.directory.join("sock"))
    }

    /// Starts it; true when it returns: a linearizable read was answered. Gives how long that took.
    pub fn start(&mut self) -> io::Result<Duration> {
        let (client, peer) = (self.port, self.port + 1);
        let begin = Instant::now();
        let log = std::fs::File::create(self.directory.join("log"))?;
        let child = Command::new(&self.binary)
            .arg("--name=m")
            .arg(format!("--data-dir={}", self.directory.join("data").display()))
            .arg(format!(
                "--listen-client-urls=http://127.0.0.1:{client},unix://{}",
                self.directory.join("sock").display()
            ))
            .arg(format!("--advertise-client-urls=http://127.0.0.1:{client}"))
            .arg(format!("--listen-peer-urls=http://127.0.0.1:{peer}"))
            .arg(format!("--initial-advertise-peer-urls=http://127.0.0.1:{peer}"))
            .arg(format!("--initial-cluster=m=http://127.0.0.1:{peer}"))
            .arg("--quota-backend-bytes=8589934592")
            .args(&self.flags)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()?;
        self.child = Some(child);
        while begin.elapsed() < Duration::from_secs(READY_S_MAX) {
            if self.read("ready").is_ok() {
                return Ok(begin.elapsed());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Err(io::Error::other(format!("{} does not become ready", self.binary.display())))
    }

    fn read(&self, key: &str) -> io::Result<RangeResponse> {
        let request =
            RangeRequest { key: key.as_bytes().to_vec().into(), ..RangeRequest::default() };
        let mut connection = Connection::open(&self.tcp())?;
        let answer = connection.ask(&head("/etcdserverpb.KV/Range"), &request.encode_to_vec())?;
        if answer.is_empty() {
            return Err(io::Error::other("refused"));
        }
        RangeResponse::decode(&answer[..]).map_err(io::Error::other)
    }

    /// Ends it with SIGTERM and waits.
    pub fn stop(&mut self) -> io::Result<()> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        if let Some(id) = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw) {
            rustix::process::kill_process(id, rustix::process::Signal::TERM)?;
        }
        child.wait().map(|_| ())
    }

    /// Resident bytes.
    pub fn resident_bytes(&self) -> io::Result<u64> {
        let id = self.child.as_ref().map_or(0, Child::id);
        let text = std::fs::read_to_string(format!("/proc/{id}/statm"))?;
        let pages: u64 = text.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
        Ok(pages * 4096)
    }

    /// Bytes that its data directory takes on the disk.
    pub fn disk_bytes(&self) -> io::Result<u64> {
        disk_bytes(&self.directory.join("data"))
    }

    /// The last lines of its log, or how it ended.
    pub fn last_words(&mut self) -> String {
        let ended = self.child.as_mut().and_then(|child| child.try_wait().ok().flatten());
        let ended =
            ended.map_or("the server runs".to_owned(), |status| format!("it ended: {status}"));
        let log = std::fs::read_to_string(self.directory.join("log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        format!("{ended}; its log ends:\n{}", lines[lines.len().saturating_sub(10)..].join("\n"))
    }

    /// Bytes that were caused to be written to the disk so far.
    pub fn written_bytes(&self) -> io::Result<u64> {
        let id = self.child.as_ref().map_or(0, Child::id);
        let text = std::fs::read_to_string(format!("/proc/{id}/io"))?;
        let line = text.lines().find_map(|line| line.strip_prefix("write_bytes: "));
        Ok(line.and_then(|bytes| bytes.parse().ok()).unwrap_or(0))
    }

    /// Processor time so far, user and system.
    pub fn cpu(&self) -> io::Result<Duration> {
        let id = self.child.as_ref().map_or(0, Child::id);
        let text = std::fs::read_to_string(format!("/proc/{id}/stat"))?;
        let after = text.rsplit(')').next().unwrap_or_default();
        let fields: Vec<&str> = after.split_whitespace().collect();
        let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok());
        Ok(Duration::from_millis((ticks(11).unwrap_or(0) + ticks(12).unwrap_or(0)) * 10))
    }
}

/// Bytes that the files below a directory take. What goes away meanwhile takes none.
fn disk_bytes(directory: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        match entry.metadata() {
            Ok(data) if data.is_dir() => bytes += disk_bytes(&entry.path())?,
            Ok(data) => bytes += data.blocks() * 512,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(bytes)
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
