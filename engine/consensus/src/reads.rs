//! Reads that wait for a read point.
//!
//! ```text
//! waiting ──ask──► asked(number) ──answer──► ready
//!    ▲                 │ leader or term changed, or no answer in time
//!    └─────────────────┘ under a new number
//! ```

use crate::limits::READS_WAITING_MAX;

/// The reads of one member.
#[derive(Default)]
pub(crate) struct Reads {
    waiting: Vec<u64>,
    asked: Option<Asked>,
    last_number: u64,
}

struct Asked {
    number: u64,
    reads: Vec<u64>,
    ticks: u32,
}

impl Reads {
    /// Takes reads in. They are answered by a question asked from now on.
    pub(crate) fn wait(&mut self, reads: Vec<u64>) {
        self.waiting.extend(reads);
        assert!(self.waiting.len() <= READS_WAITING_MAX, "reads are bounded by the caller");
    }

    /// Lets go of reads with names up to `name`.
    pub(crate) fn forget(&mut self, name: u64) {
        self.waiting.retain(|read| *read > name);
        if let Some(asked) = &mut self.asked {
            asked.reads.retain(|read| *read > name);
        }
    }

    /// Whether a question should be asked now.
    pub(crate) fn wants_to_ask(&self) -> bool {
        self.asked.is_none() && !self.waiting.is_empty()
    }

    /// Makes every waiting read depend on one question; gives its number.
    pub(crate) fn ask(&mut self) -> u64 {
        assert!(self.asked.is_none(), "one question at a time");
        self.last_number += 1;
        let reads = std::mem::take(&mut self.waiting);
        self.asked = Some(Asked { number: self.last_number, reads, ticks: 0 });
        self.last_number
    }

    /// The reads an answer sets free; none for an answer to an abandoned question.
    pub(crate) fn answered(&mut self, number: u64) -> Vec<u64> {
        match self.asked.take_if(|asked| asked.number == number) {
            Some(asked) => asked.reads,
            None => Vec::new(),
        }
    }

    /// Every waiting read, when no question is needed.
    pub(crate) fn take_all(&mut self) -> Vec<u64> {
        self.forget_question();
        std::mem::take(&mut self.waiting)
    }

    /// Abandons the open question; its reads wait again, before later ones.
    pub(crate) fn forget_question(&mut self) {
        if let Some(asked) = self.asked.take() {
            self.waiting.splice(0..0, asked.reads);
        }
    }

    /// Counts a tick; a question older than `ticks_max` is abandoned.
    pub(crate) fn tick(&mut self, ticks_max: usize) {
        let Some(asked) = &mut self.asked else { return };
        asked.ticks += 1;
        if asked.ticks as usize >= ticks_max {
            self.forget_question();
        }
    }
}
