//! The world's random numbers: xoshiro256++, seeded by splitmix64.
//!
//! Source: Blackman and Vigna, "Scrambled linear pseudorandom number generators" (2021).

/// A small seeded generator. Two generators of one seed give the same numbers for ever.
#[derive(Clone, Debug)]
pub struct Rng {
    state: [u64; 4],
}

impl Rng {
    /// A generator from a seed; any seed is good, zero too.
    #[must_use]
    pub fn new(seed: u64) -> Rng {
        let mut mix = seed;
        let state = std::array::from_fn(|_| splitmix(&mut mix));
        Rng { state }
    }

    /// A generator that goes its own way from here.
    pub fn fork(&mut self) -> Rng {
        Rng::new(self.next_u64())
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let result = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let (c, d) = (c ^ a, d ^ b);
        self.state = [a ^ d, b ^ c, c ^ (b << 17), d.rotate_left(45)];
        result
    }

    /// A number below `end`. Every number has the same chance up to a bias below 2^-32 for ends
    /// that fit 32 bits.
    pub fn below(&mut self, end: u64) -> u64 {
        assert!(end > 0, "no number is below zero");
        let wide = u128::from(self.next_u64()) * u128::from(end);
        u64::try_from(wide >> 64).expect("the upper half of a product fits 64 bits")
    }

    /// An index below `len`.
    pub fn index(&mut self, len: usize) -> usize {
        let end = u64::try_from(len).expect("a length fits 64 bits");
        usize::try_from(self.below(end)).expect("it is below a usize")
    }

    /// A number in `(low, high)`, both included.
    pub fn between(&mut self, (low, high): (u64, u64)) -> u64 {
        assert!(low <= high, "{low} is over {high}");
        low + self.below(high - low + 1)
    }

    /// True in `ppm` of a million cases. Zero draws nothing, so a fault that is off changes no
    /// other number of the run.
    pub fn chance(&mut self, ppm: u32) -> bool {
        ppm > 0 && self.below(1_000_000) < u64::from(ppm)
    }

    /// True or false, evenly.
    pub fn coin(&mut self) -> bool {
        self.next_u64() >> 63 == 1
    }
}

fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One seed, one sequence; a fork does not repeat its parent; bounds hold.
    #[test]
    fn repeats_and_stays_in_bounds() {
        let (mut one, mut two) = (Rng::new(7), Rng::new(7));
        let mut fork = one.fork();
        assert_eq!(fork.next_u64(), two.fork().next_u64());
        for _ in 0..1000 {
            assert_eq!(one.next_u64(), two.next_u64());
            assert!(one.below(3) < 3 && two.below(3) < 3);
            assert!((5..=9).contains(&fork.between((5, 9))));
        }
        assert!(!one.chance(0));
        assert!(one.chance(1_000_000));
    }
}
