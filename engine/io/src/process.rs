//! This process and its machine, seen from outside a shard: time for log lines, figures of
//! `/proc`, and the few files that are read or written before or beside the shards.
//!
//! Everything here blocks and belongs to start, stop, scrapes and the log, never to a request.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::time::WallTime;

/// Wall-clock time, without a shard.
#[must_use]
pub fn wall_now() -> WallTime {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    WallTime(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

/// Whether this is process 1, which no signal ends by itself.
#[must_use]
pub fn is_first() -> bool {
    std::process::id() == 1
}

/// A number nobody can foresee, to seed a shard's generator (`/dev/urandom`; the clock and the
/// process id where there is none).
#[must_use]
pub fn seed() -> u64 {
    let mut bytes = [0u8; 8];
    let filled = fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    match filled {
        Ok(()) => u64::from_le_bytes(bytes),
        Err(_) => wall_now().0 ^ u64::from(std::process::id()).rotate_left(32),
    }
}

/// How many threads can run at once here.
#[must_use]
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// The memory this process may use: the machine's, or less where a control group says so
/// (`cgroups(7)`, both versions). `None` where the system does not tell.
#[must_use]
pub fn memory_bytes() -> Option<u64> {
    let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let groups = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
    let limits = groups.iter().filter_map(|path| text(path).trim().parse::<u64>().ok());
    limits.chain(parse_memory(&text("/proc/meminfo"))).min()
}

fn parse_memory(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1024)
}

/// The soft limit of open files (`getrlimit(2)` RLIMIT_NOFILE).
#[must_use]
pub fn open_files_limit() -> u64 {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current.unwrap_or(u64::MAX)
}

/// Raises the soft limit of open files to the hard one, as Go's runtime does. Returns the new one.
pub fn raise_open_files_limit() -> u64 {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _unchanged_if_refused = setrlimit(Resource::Nofile, limit);
    open_files_limit()
}

/// Figures of the process at one moment. A figure that cannot be read is zero.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    /// Resident memory in bytes.
    pub resident_bytes: u64,
    /// Virtual memory in bytes.
    pub virtual_bytes: u64,
    /// Limit of virtual memory in bytes; `u64::MAX` without one.
    pub virtual_limit_bytes: u64,
    /// User and system time in seconds.
    pub cpu_seconds: f64,
    /// Open file descriptors.
    pub open_files: u64,
    /// Limit of open file descriptors.
    pub open_files_limit: u64,
    /// Start of the process, in seconds since the Unix epoch.
    pub start_seconds: f64,
    /// Bytes received by the network name space.
    pub network_received_bytes: u64,
    /// Bytes sent by the network name space.
    pub network_sent_bytes: u64,
}

/// Reads the figures (`proc(5)`).
#[must_use]
pub fn figures() -> Figures {
    let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let mut figures = parse_stat(&text("/proc/self/stat"), boot_seconds(&text("/proc/stat")));
    let (received, sent) = parse_network(&text("/proc/self/net/dev"));
    figures.network_received_bytes = received;
    figures.network_sent_bytes = sent;
    // The listing itself holds one descriptor.
    let open = fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count());
    figures.open_files = u64::try_from(open.saturating_sub(1)).unwrap_or(0);
    figures.open_files_limit = open_files_limit();
    let limit = rustix::process::getrlimit(rustix::process::Resource::As);
    figures.virtual_limit_bytes = limit.current.unwrap_or(u64::MAX);
    figures
}

fn parse_stat(stat: &str, boot_seconds: f64) -> Figures {
    let ticks_per_second = u32::try_from(rustix::param::clock_ticks_per_second()).unwrap_or(100);
    let page_bytes = u64::try_from(rustix::param::page_size()).unwrap_or(4096);
    // The second field is the program's name in parentheses and may hold anything.
    let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let number = |index: usize| -> u32 {
        // proc(5) counts fields from 1; the state, field 3, is the first one here.
        fields.get(index - 3).and_then(|field| field.parse().ok()).unwrap_or(0)
    };
    let wide = |index: usize| -> u64 {
        fields.get(index - 3).and_then(|field| field.parse().ok()).unwrap_or(0)
    };
    let seconds = |ticks: u32| f64::from(ticks) / f64::from(ticks_per_second);
    Figures {
        cpu_seconds: seconds(number(14)) + seconds(number(15)),
        start_seconds: boot_seconds + seconds(number(22)),
        virtual_bytes: wide(23),
        resident_bytes: wide(24) * page_bytes,
        ..Figures::default()
    }
}

fn boot_seconds(stat: &str) -> f64 {
    let line = stat.lines().find_map(|line| line.strip_prefix("btime "));
    line.and_then(|text| text.trim().parse().ok()).unwrap_or(0.0)
}

fn parse_network(text: &str) -> (u64, u64) {
    let mut total = (0u64, 0u64);
    for line in text.lines() {
        let Some((_, counters)) = line.split_once(':') else { continue };
        let counters: Vec<u64> =
            counters.split_ascii_whitespace().map(|field| field.parse().unwrap_or(0)).collect();
        total.0 += counters.first().copied().unwrap_or(0);
        total.1 += counters.get(8).copied().unwrap_or(0);
    }
    total
}

/// Reads a text file of at most `bytes_max`.
///
/// # Errors
/// The system's; `InvalidData` when it is longer or no UTF-8.
pub fn read_text(path: &Path, bytes_max: usize) -> io::Result<String> {
    let limit = u64::try_from(bytes_max).unwrap_or(u64::MAX);
    let mut text = String::new();
    fs::File::open(path)?.take(limit.saturating_add(1)).read_to_string(&mut text)?;
    if text.len() > bytes_max {
        let why = format!("longer than {bytes_max} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    Ok(text)
}

/// The names in a directory, sorted; `None` where there is no such directory.
///
/// # Errors
/// The system's.
pub fn list(path: &Path) -> io::Result<Option<Vec<String>>> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut names = Vec::new();
    for entry in entries {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(Some(names))
}

/// Makes a directory and its parents, for its owner only (0700).
///
/// # Errors
/// The system's.
pub fn create_private_dir(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Writes and removes a file of that name: whether a directory takes files.
///
/// # Errors
/// The system's.
pub fn touch(path: &Path) -> io::Result<()> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600).open(path)?;
    fs::remove_file(path)
}

/// Writes a small text file in one go, for its owner only.
///
/// # Errors
/// The system's.
pub fn write_text(path: &Path, text: &str) -> io::Result<()> {
    let mut options = fs::OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// A log file that lines are appended to.
#[derive(Debug)]
pub struct AppendFile {
    path: PathBuf,
    file: fs::File,
    size: u64,
}

impl AppendFile {
    /// Opens or makes the file.
    ///
    /// # Errors
    /// The system's.
    pub fn open(path: &Path) -> io::Result<AppendFile> {
        let file = fs::OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
        let size = file.metadata()?.len();
        Ok(AppendFile { path: path.to_path_buf(), file, size })
    }

    /// Bytes in the file.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Appends `line` with one write.
    ///
    /// # Errors
    /// The system's.
    pub fn append(&mut self, line: &[u8]) -> io::Result<()> {
        self.file.write_all(line)?;
        self.size += u64::try_from(line.len()).unwrap_or(0);
        Ok(())
    }

    /// Moves the file aside to `name` in its directory and begins a fresh one.
    ///
    /// # Errors
    /// The system's; the present file then stays in use.
    pub fn rotate(&mut self, name: &str) -> io::Result<()> {
        let aside = self.directory().join(name);
        fs::rename(&self.path, aside)?;
        *self = AppendFile::open(&self.path)?;
        Ok(())
    }

    /// Removes a file beside this one.
    ///
    /// # Errors
    /// The system's.
    pub fn remove_beside(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.directory().join(name))
    }

    /// Names in the file's directory, sorted.
    #[must_use]
    pub fn beside(&self) -> Vec<String> {
        list(self.directory()).ok().flatten().unwrap_or_default()
    }

    fn directory(&self) -> &Path {
        match self.path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name with parentheses and spaces does not shift the fields.
    #[test]
    fn stat_fields() {
        let mut fields: Vec<String> = (3..=52).map(|index| index.to_string()).collect();
        fields[11] = "100".to_owned();
        fields[12] = "50".to_owned();
        fields[19] = "200".to_owned();
        let line = format!("7 (a b) c) {}", fields.join(" "));
        let figures = parse_stat(&line, 1000.0);
        let ticks = f64::from(u32::try_from(rustix::param::clock_ticks_per_second()).unwrap());
        assert!((figures.cpu_seconds - 150.0 / ticks).abs() < 1e-9);
        assert!((figures.start_seconds - (1000.0 + 200.0 / ticks)).abs() < 1e-9);
        assert_eq!(figures.virtual_bytes, 23);
    }

    /// The process can be read at all.
    #[test]
    fn own_figures() {
        let figures = figures();
        assert!(figures.resident_bytes > 0);
        assert!(figures.open_files > 0);
        assert!(figures.open_files_limit >= figures.open_files);
        assert!(figures.start_seconds > 1e9);
    }

    /// Received is the first column, sent the ninth.
    #[test]
    fn network_columns() {
        let text = "h |\n face |\n  lo: 1 2 3 4 5 6 7 8 9 10\n eth0:10 0 0 0 0 0 0 0 20 0\n";
        assert_eq!(parse_network(text), (11, 29));
    }
}
