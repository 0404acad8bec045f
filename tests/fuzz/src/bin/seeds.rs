//! `seeds`: writes the inputs that fuzzing begins with, and the words it may use.
//!
//! ```text
//!   seeds DIRECTORY    DIRECTORY/TARGET/seed-N and DIRECTORY/TARGET.words for every target
//! ```

use std::fmt::Write;
use std::path::PathBuf;

fn main() -> std::io::Result<()> {
    let directory = PathBuf::from(std::env::args().nth(1).expect("the directory is named"));
    for target in ringbolt_fuzz::targets() {
        let into = directory.join(target.name);
        std::fs::create_dir_all(&into)?;
        for (number, seed) in (target.seeds)().iter().enumerate() {
            std::fs::write(into.join(format!("seed-{number:03}")), seed)?;
        }
        let mut words = String::new();
        for word in (target.words)() {
            words.push('"');
            for byte in word {
                write!(words, "\\x{byte:02x}").expect("a string takes everything");
            }
            words.push_str("\"\n");
        }
        std::fs::write(directory.join(format!("{}.words", target.name)), words)?;
        println!("{}", target.name);
    }
    Ok(())
}
