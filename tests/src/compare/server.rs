//! A server under comparison: its process, its addresses, its data.

use std::collections::BTreeSet;
use std::fs::File;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::script::Endpoint;

/// The start line when none is given: flags that etcd and its replacements share. Both servers
/// advertise the same peer URL, on which neither listens, so that both derive the same ids.
pub const ARGS: &str = "--name default --data-dir {data} --listen-client-urls {tcp},{unix} \
    --advertise-client-urls {tcp} --listen-peer-urls {peer} \
    --initial-advertise-peer-urls http://localhost:2380 \
    --initial-cluster default=http://localhost:2380 --unsafe-no-fsync";

/// How long a server may take to accept connections, and to stop.
const START_SECONDS: u64 = 20;

/// One server. Killed when dropped.
#[derive(Debug)]
pub struct Server {
    /// What it is called in the table.
    pub name: String,
    binary: PathBuf,
    args: Vec<String>,
    directory: PathBuf,
    port: u16,
    child: Option<Child>,
}

impl Server {
    /// Starts a server in an empty directory below `directory`.
    ///
    /// *Errors*: what kept it from accepting connections, with the end of its log.
    pub fn start(
        name: &str,
        binary: &Path,
        args: &str,
        directory: &Path,
    ) -> Result<Server, String> {
        let directory = directory.join(name);
        std::fs::create_dir_all(&directory).map_err(|error| error.to_string())?;
        let (port, peer) = (free_port()?, free_port()?);
        let fill = |word: &str| {
            word.replace("{data}", &directory.join("data").to_string_lossy())
                .replace("{tcp}", &format!("http://127.0.0.1:{port}"))
                .replace("{unix}", &format!("unix://{}", directory.join("sock").display()))
                .replace("{peer}", &format!("http://127.0.0.1:{peer}"))
        };
        let args = args.split_whitespace().map(fill).collect();
        let (name, binary) = (name.to_owned(), binary.to_owned());
        let mut server = Server { name, binary, args, directory, port, child: None };
        server.launch()?;
        Ok(server)
    }

    /// The endpoint as etcdctl takes it.
    #[must_use]
    pub fn endpoint(&self, endpoint: Endpoint) -> String {
        match endpoint {
            Endpoint::Tcp => format!("127.0.0.1:{}", self.port),
            Endpoint::Unix => format!("unix://{}", self.socket().display()),
        }
    }

    /// The Unix socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.directory.join("sock")
    }

    /// A directory for files of this server's commands.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Stops it gently and starts it again on the same data.
    ///
    /// *Errors*: as [`Server::start`].
    pub fn restart(&mut self) -> Result<(), String> {
        let Some(mut child) = self.child.take() else { return Err("not running".to_owned()) };
        let id = i32::try_from(child.id()).map_err(|error| error.to_string())?;
        if let Some(pid) = rustix::process::Pid::from_raw(id) {
            // It may have ended by itself: then there is nobody to tell.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let deadline = Instant::now() + Duration::from_secs(START_SECONDS);
        while child.try_wait().map_err(|error| error.to_string())?.is_none() {
            if Instant::now() > deadline {
                let _ = child.kill();
                return Err(format!("{} did not stop on SIGTERM", self.name));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        self.launch()
    }

    /// The last lines of its log.
    #[must_use]
    pub fn log_tail(&self) -> String {
        let text = std::fs::read(self.directory.join("log")).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(8)..].join("\n")
    }

    fn launch(&mut self) -> Result<(), String> {
        let log = File::options().create(true).append(true).open(self.directory.join("log"));
        let log = log.map_err(|error| error.to_string())?;
        let twin = log.try_clone().map_err(|error| error.to_string())?;
        let mut command = Command::new(&self.binary);
        command.args(&self.args).stdin(Stdio::null()).stdout(log).stderr(twin);
        let child = command.spawn().map_err(|error| format!("{:?}: {error}", self.binary))?;
        self.child = Some(child);
        let deadline = Instant::now() + Duration::from_secs(START_SECONDS);
        while !self.is_ready() {
            let ended = self.child.as_mut().and_then(|child| child.try_wait().ok()).flatten();
            if ended.is_some() || Instant::now() > deadline {
                return Err(format!("{} did not start:\n{}", self.name, self.log_tail()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Whether both listeners accept.
    fn is_ready(&self) -> bool {
        TcpStream::connect(("127.0.0.1", self.port)).is_ok()
            && std::os::unix::net::UnixStream::connect(self.socket()).is_ok()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A port that nobody listens on and that was not given before.
fn free_port() -> Result<u16, String> {
    static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    loop {
        let port = any_port()?;
        if GIVEN.lock().expect("no holder panics").insert(port) {
            return Ok(port);
        }
    }
}

fn any_port() -> Result<u16, String> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    Ok(address.port())
}
