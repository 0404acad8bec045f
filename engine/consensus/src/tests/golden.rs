//! Golden scripts: commands in, full trace out. A script in `testdata` holds lines that begin with
//! `> ` (commands) and under each the trace it gives. `RINGBOLT_GOLDEN=write` writes them anew.

use std::fmt::Write as _;
use std::path::PathBuf;

use super::world::{Group, data};
use crate::{Change, ChangeKind, Effects, EntryKind, Inputs};

fn run(script: &str) -> String {
    let mut group = Group::new(&[1], 1);
    let mut out = String::new();
    for line in script.lines() {
        let Some(command) = line.strip_prefix("> ") else {
            if line.starts_with('#') {
                writeln!(out, "{line}").expect("a string grows");
            }
            continue;
        };
        writeln!(out, "> {command}").expect("a string grows");
        let words: Vec<&str> = command.split_whitespace().collect();
        perform(&mut group, &words, &mut out);
    }
    out
}

fn perform(group: &mut Group, words: &[&str], out: &mut String) {
    let id = words.get(1).and_then(|word| word.parse().ok()).unwrap_or(0);
    let rest = words.get(2..).unwrap_or_default();
    let number = |text: &&str| text.parse::<u64>().expect("a number");
    let inputs = match words[0] {
        "group" => {
            let ids: Vec<u64> = words[1..].iter().map(number).collect();
            *group = Group::new(&ids, 1);
            return;
        }
        "campaign" => Inputs { campaign: true, ..Inputs::default() },
        "propose" => {
            let proposals = rest.iter().map(|text| data(text)).collect();
            Inputs { proposals, ..Inputs::default() }
        }
        "read" => Inputs { reads: rest.iter().map(number).collect(), ..Inputs::default() },
        "tick" => {
            let ticks = u32::try_from(number(&rest[0])).expect("few ticks");
            Inputs { ticks, ..Inputs::default() }
        }
        "add" => {
            let steps = vec![(ChangeKind::AddVoter, number(&rest[0]))];
            let change = Some(Change { steps, context: data("") });
            Inputs { change, ..Inputs::default() }
        }
        "durable" => {
            match group.durable(id, rest.first().map_or(usize::MAX, |_| 1)) {
                Some(effects) => trace(id, &effects, out),
                None => writeln!(out, "  {id} nothing to write").expect("a string grows"),
            }
            return;
        }
        "apply" => return trace(id, &group.apply(id), out),
        "deliver" => {
            let Some((from, message)) = group.net.pop_front() else { return };
            writeln!(out, "  {from} -> {}", message.to).expect("a string grows");
            let inputs = Inputs { messages: vec![message.data], ..Inputs::default() };
            let effects = group.step(message.to, inputs);
            return trace(message.to, &effects, out);
        }
        "settle" => {
            group.settle();
            return status(group, out);
        }
        "crash" => {
            group.members.get_mut(&id).expect("a member").crash(id);
            return status(group, out);
        }
        "status" => return status(group, out),
        other => panic!("no command {other}"),
    };
    trace(id, &group.step(id, inputs), out);
}

fn status(group: &Group, out: &mut String) {
    for (id, member) in &group.members {
        let at = member.node.status();
        writeln!(
            out,
            "  {id} {:?} term {} leader {} commit {} last {} durable {}",
            at.role, at.term, at.leader, at.commit, at.last, at.persisted
        )
        .expect("a string grows");
    }
}

fn trace(id: u64, effects: &Effects, out: &mut String) {
    let mut say = |text: String| writeln!(out, "  {id} {text}").expect("a string grows");
    if let Some(first) = effects.proposed {
        say(format!("proposed from {first}"));
    }
    for entry in &effects.append {
        say(format!("append {}", show(entry)));
    }
    if let Some(hard) = effects.hard_state {
        say(format!("hard state term {} vote {} commit {}", hard.term, hard.vote, hard.commit));
    }
    if effects.must_write {
        say(format!("write as step {}", effects.number));
    }
    for message in &effects.send {
        say(format!("send to {}", message.to));
    }
    for message in &effects.send_after_durable.messages {
        say(format!("send to {} after step {}", message.to, effects.send_after_durable.after));
    }
    for entry in &effects.committed {
        say(format!("committed {}", show(entry)));
    }
    for (read, index) in &effects.read_ready {
        say(format!("read {read} at {index}"));
    }
}

fn show(entry: &crate::Entry) -> String {
    let data = match entry.kind {
        EntryKind::Command => String::from_utf8_lossy(&entry.data).into_owned(),
        EntryKind::Membership => "membership".to_string(),
    };
    format!("{}@{} {data}", entry.index, entry.term).trim_end().to_string()
}

/// Every script of `testdata` gives the trace it holds.
#[test]
fn scripts_give_their_traces() {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/src/testdata"));
    let mut names: Vec<PathBuf> = std::fs::read_dir(&folder)
        .expect("testdata is there")
        .map(|entry| entry.expect("a readable folder").path())
        .collect();
    names.sort();
    assert!(!names.is_empty());
    for path in names {
        let script = std::fs::read_to_string(&path).expect("a readable script");
        let found = run(&script);
        if std::env::var("RINGBOLT_GOLDEN").is_ok_and(|mode| mode == "write") {
            std::fs::write(&path, &found).expect("a writable script");
        }
        let expected = std::fs::read_to_string(&path).expect("a readable script");
        assert_eq!(found, expected, "{}", path.display());
    }
}
