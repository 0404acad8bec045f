//! The names of one machine's files: what the running system sees, and what a power loss leaves.
//!
//! A change of a name (create, rename, remove, new directory) is seen at once and becomes durable
//! when every directory it touches was synced after it. At power loss the changes that are not
//! durable are cut at a random point of their order (as a journal would) or each kept or lost by
//! itself (as POSIX allows); a rename is never torn: its target names the old file or the new one.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Component, Path, PathBuf};

use super::content::Loss;
use crate::sim::rng::Rng;

/// Names an inode of one machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct InodeId(pub(super) u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    File(InodeId),
    Directory,
}

#[derive(Clone)]
struct Change {
    sequence: u64,
    /// Directories whose sync it still waits for.
    waits: BTreeSet<PathBuf>,
    what: What,
}

#[derive(Clone)]
enum What {
    Create(PathBuf, Entry),
    Remove(PathBuf),
    Rename(PathBuf, PathBuf, InodeId),
}

#[derive(Clone)]
pub(super) struct Names {
    view: BTreeMap<PathBuf, Entry>,
    stable: BTreeMap<PathBuf, Entry>,
    changes: Vec<Change>,
}

impl Names {
    pub(super) fn new() -> Names {
        let root = BTreeMap::from([(PathBuf::from("/"), Entry::Directory)]);
        Names { view: root.clone(), stable: root, changes: Vec::new() }
    }

    pub(super) fn file(&self, path: &Path) -> io::Result<InodeId> {
        match self.view.get(&whole(path)) {
            Some(Entry::File(inode)) => Ok(*inode),
            Some(Entry::Directory) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    pub(super) fn create(&mut self, path: &Path, inode: InodeId, sequence: u64) -> io::Result<()> {
        let path = whole(path);
        self.directory(&parent(&path))?;
        self.add(path, Entry::File(inode), sequence);
        Ok(())
    }

    pub(super) fn create_dir_all(&mut self, path: &Path, sequence: u64) -> io::Result<()> {
        let path = whole(path);
        let mut missing: Vec<PathBuf> = Vec::new();
        for place in path.ancestors() {
            match self.view.get(place) {
                Some(Entry::Directory) => break,
                Some(Entry::File(_)) => return Err(io::ErrorKind::NotADirectory.into()),
                None => missing.push(place.to_path_buf()),
            }
        }
        for place in missing.into_iter().rev() {
            self.add(place, Entry::Directory, sequence);
        }
        Ok(())
    }

    fn add(&mut self, path: PathBuf, entry: Entry, sequence: u64) {
        let waits = BTreeSet::from([parent(&path)]);
        self.view.insert(path.clone(), entry);
        self.changes.push(Change { sequence, waits, what: What::Create(path, entry) });
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path, sequence: u64) -> io::Result<()> {
        let (from, to) = (whole(from), whole(to));
        let inode = self.file(&from)?;
        self.directory(&parent(&to))?;
        if self.view.get(&to) == Some(&Entry::Directory) {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let waits = BTreeSet::from([parent(&from), parent(&to)]);
        let what = What::Rename(from, to, inode);
        what.apply(&mut self.view);
        self.changes.push(Change { sequence, waits, what });
        Ok(())
    }

    pub(super) fn remove(&mut self, path: &Path, sequence: u64) -> io::Result<()> {
        let path = whole(path);
        self.file(&path)?;
        let waits = BTreeSet::from([parent(&path)]);
        let what = What::Remove(path);
        what.apply(&mut self.view);
        self.changes.push(Change { sequence, waits, what });
        Ok(())
    }

    pub(super) fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let path = whole(path);
        self.directory(&path)?;
        let inside =
            self.view.range(path.clone()..).take_while(|(name, _)| name.starts_with(&path));
        let mut names: Vec<String> = inside
            .filter(|(name, _)| name.parent() == Some(&path))
            .filter_map(|(name, _)| name.file_name())
            .map(|name| name.to_string_lossy().into_owned())
            .collect();
        names.sort();
        Ok(names)
    }

    /// A sync of one directory covers the changes in it up to `sequence`.
    pub(super) fn cover(&mut self, directory: &Path, sequence: u64) -> io::Result<()> {
        let directory = whole(directory);
        self.directory(&directory)?;
        let stable = &mut self.stable;
        self.changes.retain_mut(|change| {
            if change.sequence <= sequence {
                change.waits.remove(&directory);
            }
            if change.waits.is_empty() {
                change.what.apply(stable);
            }
            !change.waits.is_empty()
        });
        Ok(())
    }

    /// Everything is durable as it is now: how a world is set up.
    pub(super) fn settle(&mut self) {
        self.changes.clear();
        self.stable = self.view.clone();
    }

    pub(super) fn lose(&mut self, loss: Loss, rng: &mut Rng) {
        let changes = std::mem::take(&mut self.changes);
        let journal = rng.coin();
        let cut = rng.index(changes.len() + 1);
        for (position, change) in changes.iter().enumerate() {
            let kept = match loss {
                Loss::Everything => false,
                Loss::Nothing => true,
                Loss::Sectors if journal => position < cut,
                Loss::Sectors => rng.coin(),
            };
            if kept {
                change.what.apply(&mut self.stable);
            }
        }
        let known = self.stable.clone();
        let reachable = |path: &Path| {
            path.ancestors().skip(1).all(|place| known.get(place) == Some(&Entry::Directory))
        };
        self.stable.retain(|path, _| reachable(path));
        self.view = self.stable.clone();
    }

    /// Every inode that has a name now or may get one back.
    pub(super) fn named(&self) -> BTreeSet<InodeId> {
        let entries = self.view.values().chain(self.stable.values());
        let mut inodes: BTreeSet<InodeId> = entries.filter_map(|entry| entry.inode()).collect();
        inodes.extend(self.changes.iter().filter_map(|change| match &change.what {
            What::Create(_, entry) => entry.inode(),
            What::Rename(_, _, inode) => Some(*inode),
            What::Remove(_) => None,
        }));
        inodes
    }

    fn directory(&self, path: &Path) -> io::Result<()> {
        match self.view.get(path) {
            Some(Entry::Directory) => Ok(()),
            Some(Entry::File(_)) => Err(io::ErrorKind::NotADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

impl Entry {
    fn inode(self) -> Option<InodeId> {
        match self {
            Entry::File(inode) => Some(inode),
            Entry::Directory => None,
        }
    }
}

impl What {
    fn apply(&self, names: &mut BTreeMap<PathBuf, Entry>) {
        match self {
            What::Create(path, entry) => {
                names.insert(path.clone(), *entry);
            }
            What::Remove(path) => {
                names.remove(path);
            }
            What::Rename(from, to, inode) => {
                if names.get(from) == Some(&Entry::File(*inode)) {
                    names.remove(from);
                }
                names.insert(to.clone(), Entry::File(*inode));
            }
        }
    }
}

/// The path from the root: the working directory of every simulated process is `/`.
fn whole(path: &Path) -> PathBuf {
    let mut whole = PathBuf::from("/");
    for part in path.components() {
        match part {
            Component::Normal(name) => whole.push(name),
            Component::ParentDir => {
                whole.pop();
            }
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    whole
}

fn parent(path: &Path) -> PathBuf {
    path.parent().map_or_else(|| PathBuf::from("/"), Path::to_path_buf)
}
