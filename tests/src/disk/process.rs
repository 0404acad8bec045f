//! The server as a process, which ends with us whatever happens.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::load::Doors;

/// How often something is looked at that has no bell.
const LOOK_TIME: Duration = Duration::from_millis(3);

/// How to start it.
pub struct Recipe {
    /// The binary.
    pub binary: PathBuf,
    /// Its data directory.
    pub data: PathBuf,
    /// Its log.
    pub log: PathBuf,
    /// Where it listens.
    pub doors: Doors,
    /// Where it would listen for peers.
    pub peer: String,
    /// Mode and io engine.
    pub flags: Vec<String>,
}

/// A running server. It is killed when dropped.
pub struct Process {
    child: Child,
    log: PathBuf,
}

impl Recipe {
    /// Starts it; it is not ready yet.
    ///
    /// # Errors
    /// The system's.
    pub fn start(&self) -> Result<Process, String> {
        let text = |error: std::io::Error| format!("starting the server: {error}");
        let log = fs::File::create(&self.log).map_err(text)?;
        let (client, peer) =
            (format!("http://{}", self.doors.address), format!("http://{}", self.peer));
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .arg(&self.binary)
            .arg(format!("--data-dir={}", self.data.display()))
            .arg(format!("--listen-client-urls={client},unix://{}", self.doors.socket.display()))
            .arg(format!("--advertise-client-urls={client}"))
            .arg(format!("--listen-peer-urls={peer}"))
            .arg(format!("--initial-advertise-peer-urls={peer}"))
            .arg(format!("--initial-cluster=default={peer}"))
            .args(&self.flags)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .map_err(text)?;
        Ok(Process { child, log: self.log.clone() })
    }
}

impl Process {
    /// Waits until it serves.
    ///
    /// # Errors
    /// It ended, or takes longer than `time`; with its log.
    pub fn ready(&mut self, time: Duration) -> Result<(), String> {
        let until = Instant::now() + time;
        while !read(&self.log).contains("ready to serve client requests") {
            if let Some(code) = self.ended() {
                return Err(format!("the server ended ({code}) at its start:\n{}", self.tail()));
            }
            if Instant::now() > until {
                let (threads, tail) = (self.threads(), self.tail());
                return Err(format!("the server is not ready in {time:?}:\n{threads}\n{tail}"));
            }
            sleep(LOOK_TIME);
        }
        Ok(())
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<String> {
        self.child.try_wait().ok().flatten().map(|status| status.to_string())
    }

    /// Waits until it has ended.
    ///
    /// # Errors
    /// It has not, in `time`.
    pub fn end(&mut self, time: Duration) -> Result<String, String> {
        let until = Instant::now() + time;
        loop {
            if let Some(status) = self.ended() {
                return Ok(status);
            }
            if Instant::now() > until {
                let (threads, tail) = (self.threads(), self.tail());
                return Err(format!("the server has not ended in {time:?}:\n{threads}\n{tail}"));
            }
            sleep(LOOK_TIME);
        }
    }

    /// Kills it with SIGKILL; it has ended when this returns.
    ///
    /// # Errors
    /// It does not end.
    pub fn kill(&mut self, time: Duration) -> Result<(), String> {
        let _ended_already = self.child.kill();
        self.end(time).map(drop)
    }

    /// Asks it to stop by SIGTERM and waits.
    ///
    /// # Errors
    /// It does not end, or not by the signal.
    pub fn stop(&mut self, time: Duration) -> Result<(), String> {
        let id = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw);
        let id = id.ok_or("the server has no process id")?;
        rustix::process::kill_process(id, rustix::process::Signal::TERM)
            .map_err(|error| error.to_string())?;
        let status = self.end(time)?;
        let ordered = status.contains("signal: 15") || status.contains("exit status: 143");
        if ordered { Ok(()) } else { Err(format!("a stop ended with {status}:\n{}", self.tail())) }
    }

    /// What each of its threads waits for in the kernel.
    fn threads(&self) -> String {
        let tasks = PathBuf::from(format!("/proc/{}/task", self.child.id()));
        let tasks = fs::read_dir(tasks).into_iter().flatten().flatten();
        let line = |task: fs::DirEntry| {
            let of = |name: &str| read(&task.path().join(name)).trim().to_owned();
            let state = of("stat").rsplit(") ").next().map(|rest| rest.chars().take(1).collect());
            let state: String = state.unwrap_or_default();
            format!("thread {} {state} in {}", of("comm"), of("wchan"))
        };
        tasks.map(line).collect::<Vec<_>>().join("\n")
    }

    /// The end of its log.
    #[must_use]
    pub fn tail(&self) -> String {
        let log = read(&self.log);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(12)..].join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ended_already = self.child.kill();
        let _ended_already = self.child.wait();
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}
