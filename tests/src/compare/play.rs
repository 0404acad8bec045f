//! Plays a script against one server.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hashbrown::HashMap;

use super::normal::Names;
use super::script::{Act, Ctl, Endpoint, Step};
use super::server::Server;
use super::{Outcome, http, raw};

/// How long one command may take before it is killed. The checks of etcdctl take a minute.
const COMMAND_SECONDS: u64 = 20;
const CHECK_SECONDS: u64 = 300;
/// How long a background command has to connect before the script goes on.
const SETTLE: Duration = Duration::from_millis(300);

/// A script in play.
#[derive(Debug)]
pub struct Player<'a> {
    server: &'a mut Server,
    etcdctl: PathBuf,
    endpoint: Endpoint,
    names: Names,
    kept: Vec<(String, String)>,
    background: HashMap<String, Background>,
}

#[derive(Debug)]
struct Background {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Stream,
    stderr: Stream,
    line: String,
}

/// What a command writes, collected while it runs.
#[derive(Debug)]
struct Stream {
    bytes: Arc<Mutex<Vec<u8>>>,
    thread: JoinHandle<()>,
}

impl<'a> Player<'a> {
    /// Prepares to play against a server that runs.
    ///
    /// *Errors*: it does not tell its ids.
    pub fn new(
        server: &'a mut Server,
        etcdctl: &Path,
        shows_version: bool,
    ) -> Result<Player<'a>, String> {
        let mut names = Names::default();
        let (cluster, member) = raw::ids(server, shows_version)?;
        names.add_id(cluster, "cluster");
        names.add_id(member, "member");
        names.add(&server.endpoint(Endpoint::Tcp), "tcp");
        names.add(&server.endpoint(Endpoint::Unix), "unix");
        names.add(&server.directory().to_string_lossy(), "directory");
        Ok(Player {
            server,
            etcdctl: etcdctl.to_owned(),
            endpoint: Endpoint::Tcp,
            names,
            kept: Vec::new(),
            background: HashMap::new(),
        })
    }

    /// Plays every step; the outcomes are in the order of the steps.
    pub fn play(&mut self, steps: &[Step]) -> Vec<Outcome> {
        steps.iter().map(|step| self.step(step)).collect()
    }

    fn step(&mut self, step: &Step) -> Outcome {
        let outcome = match &step.act {
            Act::Over(endpoint) => {
                self.endpoint = *endpoint;
                Ok(Outcome::default())
            }
            Act::Ctl(ctl) => self.ctl(ctl, &step.text),
            Act::Raw(method, text) => raw::call(self.server, self.endpoint, method, text),
            Act::Http(bytes) => http::exchange(self.server, bytes),
            Act::Start(name, ctl) => self.start(name, ctl, &step.text),
            Act::Send(name, line) => self.send(name, line),
            Act::Stop(name, count) => self.stop(name, Some(*count)),
            Act::Wait(name) => self.stop(name, None),
            Act::Pause(milliseconds) => {
                std::thread::sleep(Duration::from_millis(*milliseconds));
                Ok(Outcome::default())
            }
            Act::Restart => self.server.restart().map(|()| Outcome::default()),
        };
        let mut outcome = outcome.unwrap_or_else(|error| Outcome {
            stderr: format!("not played: {error}"),
            ..Outcome::default()
        });
        outcome.stdout = self.names.apply(&step.text, &outcome.stdout);
        outcome.stderr = self.names.apply(&step.text, &outcome.stderr);
        outcome
    }

    fn ctl(&mut self, ctl: &Ctl, line: &str) -> Result<Outcome, String> {
        let mut running = self.spawn(ctl, line)?;
        running.stdin = None;
        let seconds = if line.contains(" check ") { CHECK_SECONDS } else { COMMAND_SECONDS };
        let mut outcome = running.finish(Duration::from_secs(seconds))?;
        if let Some(name) = &ctl.keep {
            let id = first_lease_id(&outcome.stdout).ok_or("no lease id was printed")?;
            self.kept.push((format!("${name}"), id));
        }
        if ctl.unordered {
            let mut lines: Vec<&str> = outcome.stdout.lines().collect();
            lines.sort_unstable();
            outcome.stdout = lines.join("\n");
        }
        Ok(outcome)
    }

    fn start(&mut self, name: &str, ctl: &Ctl, line: &str) -> Result<Outcome, String> {
        let running = self.spawn(ctl, line)?;
        std::thread::sleep(SETTLE);
        self.background.insert(name.to_owned(), running);
        Ok(Outcome::default())
    }

    fn send(&mut self, name: &str, line: &str) -> Result<Outcome, String> {
        let running = self.background.get_mut(name).ok_or("nothing of this name runs")?;
        let stdin = running.stdin.as_mut().ok_or("its stdin is closed")?;
        writeln!(stdin, "{line}").map_err(|error| error.to_string())?;
        std::thread::sleep(SETTLE);
        Ok(Outcome::default())
    }

    fn stop(&mut self, name: &str, count: Option<usize>) -> Result<Outcome, String> {
        let mut running = self.background.remove(name).ok_or("nothing of this name runs")?;
        let mut note = String::new();
        if let Some(count) = count {
            let came = running.wait_for_lines(count);
            note = if came < count { format!("only {came} lines came\n") } else { String::new() };
            running.interrupt();
        }
        let line = std::mem::take(&mut running.line);
        let mut outcome = running.finish(Duration::from_secs(COMMAND_SECONDS))?;
        outcome.stdout = self.names.apply(&line, &outcome.stdout);
        outcome.stderr.insert_str(0, &note);
        Ok(outcome)
    }

    fn spawn(&self, ctl: &Ctl, line: &str) -> Result<Background, String> {
        let fill = |word: &String| {
            let word = word.replace("$DIR", &self.server.directory().to_string_lossy());
            self.kept.iter().fold(word, |word, (name, id)| word.replace(name, id))
        };
        let mut command = Command::new(&self.etcdctl);
        command.args(["--endpoints", &self.server.endpoint(self.endpoint)]);
        command.args(ctl.args.iter().map(fill)).env_clear().env("ETCDCTL_API", "3");
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        // Only etcdctl 3.4 knows the variable; later ones warn about it.
        if !self.etcdctl.to_string_lossy().contains("34") {
            command.env_remove("ETCDCTL_API");
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("etcdctl: {error}"))?;
        let mut stdin = child.stdin.take();
        if let Some(stdin) = stdin.as_mut() {
            let text: String = ctl.stdin.iter().map(|line| format!("{line}\n")).collect();
            // A command that ended already does not read: its exit code tells.
            let _ = stdin.write_all(text.as_bytes());
        }
        let stdout = Stream::collect(child.stdout.take().ok_or("no stdout")?);
        let stderr = Stream::collect(child.stderr.take().ok_or("no stderr")?);
        Ok(Background { child, stdin, stdout, stderr, line: line.to_owned() })
    }
}

impl Background {
    /// Waits until so many lines came, and says how many did.
    fn wait_for_lines(&self, count: usize) -> usize {
        let deadline = Instant::now() + Duration::from_secs(5);
        while self.stdout.lines() < count && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        // What comes too much shall come too.
        std::thread::sleep(Duration::from_millis(100));
        self.stdout.lines()
    }

    fn interrupt(&self) {
        let id = i32::try_from(self.child.id()).unwrap_or(0);
        if let Some(pid) = rustix::process::Pid::from_raw(id) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
        }
    }

    /// Waits for the end and takes the output; kills after `limit`.
    fn finish(mut self, limit: Duration) -> Result<Outcome, String> {
        let deadline = Instant::now() + limit;
        let status = loop {
            if let Some(status) = self.child.try_wait().map_err(|error| error.to_string())? {
                break Some(status);
            }
            if Instant::now() > deadline {
                let _ = self.child.kill();
                let _ = self.child.wait();
                break None;
            }
            std::thread::sleep(Duration::from_millis(3));
        };
        drop(self.stdin);
        let exit = match status {
            None => "killed: it took too long".to_owned(),
            Some(status) => status.to_string(),
        };
        Ok(Outcome { stdout: self.stdout.take(), stderr: self.stderr.take(), exit })
    }
}

impl Stream {
    fn collect(mut from: impl Read + Send + 'static) -> Stream {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let shared = Arc::clone(&bytes);
        let thread = std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(size @ 1..) = from.read(&mut buffer) {
                shared.lock().expect("no holder panics").extend_from_slice(&buffer[..size]);
            }
        });
        Stream { bytes, thread }
    }

    fn lines(&self) -> usize {
        let bytes = self.bytes.lock().expect("no holder panics");
        bytes.iter().filter(|byte| **byte == b'\n').count()
    }

    fn take(self) -> String {
        let _ = self.thread.join();
        visible(&self.bytes.lock().expect("no holder panics"))
    }
}

/// Bytes as text in which each is visible: text stays, everything else is escaped.
fn visible(bytes: &[u8]) -> String {
    let escape = |byte: &u8| match byte {
        b'\n' | b'\r' | b'\t' | b' '..=b'~' => char::from(*byte).to_string(),
        byte => format!("\\x{byte:02x}"),
    };
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains(|c: char| c.is_control() && !"\n\r\t".contains(c)) => {
            text.to_owned()
        }
        _ => bytes.iter().map(escape).collect(),
    }
}

/// The id that a grant printed, in hexadecimal: `lease 2be7547fbc6a5afa granted ...`, or the
/// decimal `ID` of JSON or fields.
fn first_lease_id(text: &str) -> Option<String> {
    if let Some((_, tail)) = text.split_once("\"ID\"") {
        let digits = tail.trim_start_matches([':', ' ']);
        let digits = digits.split(|c: char| !c.is_ascii_digit()).next()?;
        return digits.parse::<u64>().ok().map(|id| format!("{id:x}"));
    }
    let mut words = text.split(|c: char| !c.is_ascii_hexdigit());
    words.find(|word| word.len() >= 15).map(str::to_owned)
}
