//! The disk as a mounted file system: FUSE, loop device, ext4 or xfs.
//!
//! ```text
//! new ─► FUSE mounted ─► format ─► attach ⇄ detach
//! ```
//! All of it happens in a mount namespace that ends with its last process, and a loop device is
//! given back as soon as it is mounted (it then goes with the mount): nothing stays behind, however
//! we end. Whatever could hang is a command of its own with a time limit; this process itself never
//! touches a file on the disk, because it is the disk.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::fuse::{Disk, FILE};

/// How long a command may take.
const COMMAND_S_MAX: &str = "30";
/// How long a file system may be busy after its last process has ended: the kernel still finishes
/// what that process had begun.
const BUSY_TIME_MAX: Duration = Duration::from_secs(15);
const BUSY_LOOK_TIME: Duration = Duration::from_millis(5);
/// Where Linux tells which boot this is.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// Set once we are in a namespace of our own.
const INSIDE: &str = "POWERCUT_INSIDE";

/// A kind of file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// ext4
    Ext4,
    /// xfs
    Xfs,
}

impl Kind {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Ext4 => "ext4",
            Kind::Xfs => "xfs",
        }
    }

    fn format(self) -> &'static [&'static str] {
        match self {
            // Everything is made at once: a lazy table would be written for minutes.
            Kind::Ext4 => &[
                "mkfs.ext4",
                "-q",
                "-F",
                "-E",
                "nodiscard,lazy_itable_init=0,lazy_journal_init=0",
                "-J",
                "size=8",
            ],
            Kind::Xfs => &["mkfs.xfs", "-q", "-f", "-K"],
        }
    }
}

/// A disk that can be mounted.
pub struct Rig {
    /// What is below.
    pub disk: Disk,
    /// Where the file system is mounted.
    pub mounted: PathBuf,
    kind: Kind,
    sector_bytes: usize,
    directory: PathBuf,
    _session: fuser::BackgroundSession,
}

/// Starts this program again in a mount namespace of its own, unless it is in one.
///
/// # Errors
/// `unshare` cannot be run.
pub fn enter_namespace() -> Result<(), String> {
    if std::env::var_os(INSIDE).is_some() {
        return Ok(());
    }
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let error = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "--fork", "--kill-child", "--"])
        .arg(own)
        .args(std::env::args_os().skip(1))
        .env(INSIDE, "yes")
        .exec();
    Err(format!("unshare: {error}"))
}

impl Rig {
    /// Shows the disk below `directory`, which is made.
    ///
    /// # Errors
    /// No FUSE here.
    pub fn new(
        disk: Disk,
        kind: Kind,
        sector_bytes: usize,
        directory: &Path,
    ) -> Result<Rig, String> {
        let text = |error: std::io::Error| format!("{}: {error}", directory.display());
        let (below, mounted) = (directory.join("fuse"), directory.join("mounted"));
        fs::create_dir_all(&below).map_err(text)?;
        fs::create_dir_all(&mounted).map_err(text)?;
        let session = disk.mount(&below).map_err(|error| format!("mounting FUSE: {error}"))?;
        let directory = directory.to_path_buf();
        Ok(Rig { disk, mounted, kind, sector_bytes, directory, _session: session })
    }

    /// Makes the file system.
    ///
    /// # Errors
    /// A command's.
    pub fn format(&self) -> Result<(), String> {
        let device = self.attach_loop()?;
        let made = command(self.kind.format(), &[&device]);
        command(&["losetup", "-d"], &[&device])?;
        made?;
        self.wait_until_free(&device)
    }

    /// Mounts it; the file system makes good what a cut left. Gives the loop device.
    ///
    /// # Errors
    /// A command's: the file system did not come back.
    pub fn attach(&self) -> Result<String, String> {
        let device = self.attach_loop()?;
        let mounted =
            command(&["mount", "-t", self.kind.name()], &[&device, &text_of(&self.mounted)]);
        // It goes when nothing uses it any more: at once, if it was not mounted.
        command(&["losetup", "-d"], &[&device])?;
        mounted.map(|()| device)
    }

    /// Unmounts it and waits until the device is free.
    ///
    /// # Errors
    /// It stays busy.
    pub fn detach(&self, device: &str) -> Result<(), String> {
        let until = Instant::now() + BUSY_TIME_MAX;
        while let Err(error) = command(&["umount"], &[&text_of(&self.mounted)]) {
            if Instant::now() > until {
                return Err(error);
            }
            sleep(BUSY_LOOK_TIME);
        }
        self.wait_until_free(device)
    }

    /// Names of the files on the mounted disk.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn names(&self) -> Result<Vec<String>, String> {
        let names = output(&["find"], &[&text_of(&self.mounted), "-type", "f"])?;
        Ok(names.lines().filter_map(|path| path.rsplit('/').next()).map(str::to_owned).collect())
    }

    fn attach_loop(&self) -> Result<String, String> {
        let file = self.directory.join("fuse").join(FILE);
        let sector = self.sector_bytes.to_string();
        let attach = ["losetup", "--find", "--show", "--direct-io=on", "--sector-size", &sector];
        // Others attach loop devices too: the one that was free may be taken a moment later.
        let until = Instant::now() + BUSY_TIME_MAX;
        loop {
            match output(&attach, &[&text_of(&file)]) {
                Ok(device) => return Ok(device.trim().to_owned()),
                Err(error) if Instant::now() > until => return Err(error),
                Err(_) => sleep(BUSY_LOOK_TIME),
            }
        }
    }

    fn wait_until_free(&self, device: &str) -> Result<(), String> {
        let name = device.rsplit('/').next().unwrap_or_default();
        let path = format!("/sys/block/{name}/loop/backing_file");
        let ours = text_of(&self.directory);
        let until = Instant::now() + BUSY_TIME_MAX;
        while fs::read_to_string(&path).is_ok_and(|file| file.starts_with(&ours)) {
            if Instant::now() > until {
                return Err(format!("{device} stays in use"));
            }
            sleep(BUSY_LOOK_TIME);
        }
        Ok(())
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        let _not_mounted = command(&["umount", "--lazy"], &[&text_of(&self.mounted)]);
    }
}

/// The boot id that processes of this namespace see: a cut is a new boot.
pub struct BootId {
    file: PathBuf,
}

impl BootId {
    /// Lays a file of ours over the kernel's.
    ///
    /// # Errors
    /// It cannot be laid there.
    pub fn new(directory: &Path) -> Result<BootId, String> {
        let boot = BootId { file: directory.join("boot_id") };
        boot.set(0)?;
        command(&["mount", "--bind"], &[&text_of(&boot.file), BOOT_ID])?;
        Ok(boot)
    }

    /// Another boot.
    ///
    /// # Errors
    /// The system's.
    pub fn set(&self, number: u64) -> Result<(), String> {
        let id = format!("00000000-0000-4000-8000-{number:012x}\n");
        fs::write(&self.file, id).map_err(|error| error.to_string())
    }
}

fn text_of(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Runs a command; its failure has what it said.
fn command(words: &[&str], more: &[&str]) -> Result<(), String> {
    output(words, more).map(drop)
}

fn output(words: &[&str], more: &[&str]) -> Result<String, String> {
    let line = || [words, more].concat().join(" ");
    let output = Command::new("timeout")
        .args(["--kill-after=5", COMMAND_S_MAX])
        .args(words)
        .args(more)
        .output()
        .map_err(|error| format!("{}: {error}", line()))?;
    let said = |status: ExitStatus| {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        format!("{}: {status}: {said}", line())
    };
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(said(output.status)),
    }
}
