//! The server under attack: a process of its own, reached over a Unix socket and over TCP.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

const READY_TIME_MAX: Duration = Duration::from_secs(20);
const PAGE_BYTES: u64 = 4096;

/// A running server. It is killed when dropped.
pub struct Server {
    child: Child,
    directory: PathBuf,
    /// Its TCP address.
    pub address: String,
}

impl Server {
    /// Starts `binary` in an empty directory and waits until it serves.
    ///
    /// # Errors
    /// What went wrong, with the end of its log.
    pub fn start(binary: &Path, directory: &Path, flags: &[String]) -> Result<Server, String> {
        let text = |error: std::io::Error| error.to_string();
        fs::create_dir_all(directory).map_err(text)?;
        let (client, peer) = (free_port()?, free_port()?);
        let address = format!("127.0.0.1:{client}");
        let socket = directory.join("sock");
        let log = fs::File::create(directory.join("log")).map_err(text)?;
        let urls = format!("http://{address},unix://{}", socket.display());
        let peers = format!("http://127.0.0.1:{peer}");
        let child = Command::new(binary)
            .arg(format!("--data-dir={}", directory.join("data").display()))
            .arg(format!("--listen-client-urls={urls}"))
            .arg(format!("--advertise-client-urls=http://{address}"))
            .arg(format!("--listen-peer-urls={peers}"))
            .arg(format!("--initial-advertise-peer-urls={peers}"))
            .arg(format!("--initial-cluster=default={peers}"))
            .args(flags)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .map_err(|error| format!("{}: {error}", binary.display()))?;
        let mut server = Server { child, directory: directory.to_path_buf(), address };
        let until = Instant::now() + READY_TIME_MAX;
        while !server.log().contains("ready to serve client requests") {
            if Instant::now() > until || !server.is_alive() {
                return Err(format!("the server did not start:\n{}", server.log()));
            }
            sleep(Duration::from_millis(20));
        }
        Ok(server)
    }

    /// Its Unix socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.directory.join("sock")
    }

    /// Everything it has logged.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }

    /// Whether the process still runs.
    pub fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Its process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _gone_already = self.child.kill();
        let _gone_already = self.child.wait();
    }
}

/// Memory of a process that is resident now.
#[must_use]
pub fn resident_bytes(process: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{process}/statm")).unwrap_or_default();
    let pages: u64 =
        text.split_whitespace().nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * PAGE_BYTES
}

fn free_port() -> Result<u16, String> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
    Ok(listener.local_addr().map_err(|error| error.to_string())?.port())
}
