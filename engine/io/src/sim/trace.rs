//! One number that stands for everything that happened.

/// A running hash of a run: every operation, answer and event with its time goes in. Two runs of
/// one seed must end with the same number; a run that does not repeat cannot be debugged.
#[derive(Clone, Debug, Default)]
pub(super) struct Trace {
    hash: u64,
}

const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

impl Trace {
    pub(super) fn hash(&self) -> u64 {
        self.hash
    }

    pub(super) fn fold(&mut self, value: u64) {
        self.hash = (self.hash.rotate_left(5) ^ value).wrapping_mul(FACTOR);
    }

    pub(super) fn fold_all(&mut self, values: &[u64]) {
        for value in values {
            self.fold(*value);
        }
    }

    /// Four lanes, so that hashing a block costs less than copying it.
    pub(super) fn fold_bytes(&mut self, bytes: &[u8]) {
        let mut lanes = [1u64, 2, 3, 4];
        let mut chunks = bytes.chunks_exact(32);
        for chunk in &mut chunks {
            for (lane, word) in lanes.iter_mut().zip(chunk.chunks_exact(8)) {
                let word = u64::from_le_bytes(word.try_into().expect("chunks of eight"));
                *lane = (lane.rotate_left(5) ^ word).wrapping_mul(FACTOR);
            }
        }
        for byte in chunks.remainder() {
            lanes[0] = (lanes[0].rotate_left(5) ^ u64::from(*byte)).wrapping_mul(FACTOR);
        }
        self.fold_all(&lanes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The hash depends on every byte and on the order.
    #[test]
    fn sees_every_byte_and_the_order() {
        let hash = |bytes: &[u8]| {
            let mut trace = Trace::default();
            trace.fold_bytes(bytes);
            trace.hash()
        };
        let mut bytes = [0u8; 77];
        let zero = hash(&bytes);
        for index in 0..bytes.len() {
            bytes[index] = 1;
            assert_ne!(hash(&bytes), zero, "byte {index} is not seen");
            bytes[index] = 0;
        }
        let (mut one, mut two) = (Trace::default(), Trace::default());
        one.fold_all(&[1, 2]);
        two.fold_all(&[2, 1]);
        assert_ne!(one.hash(), two.hash());
    }
}
