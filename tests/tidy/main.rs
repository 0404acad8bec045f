//! The mechanical rules of the tree, checked over its text: arrows between crates, sizes of files
//! and functions, heads and docs, where unsafe may stand, words that do not merge.
//!
//! Each rule is a function from the sources to complaints; a test demands that there are none. The
//! rules themselves are tested at the end on small texts that break them.

mod rules;
mod source;

use source::Source;

fn complaints_of(rule: impl Fn(&Source) -> Vec<String>) -> Vec<String> {
    let sources = source::all();
    assert!(sources.len() > 20, "only {} sources found: the walk is broken", sources.len());
    sources.iter().flat_map(rule).collect()
}

fn demand_none(complaints: &[String]) {
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

#[test]
fn crates_point_one_way() {
    demand_none(&rules::crate_arrows());
}

#[test]
fn modules_do_not_know_what_they_must_not() {
    demand_none(&complaints_of(rules::module_arrows));
}

#[test]
fn files_functions_lines_and_parameters_are_small() {
    demand_none(&complaints_of(rules::sizes));
}

#[test]
fn every_file_has_a_head_and_every_public_item_a_doc() {
    demand_none(&complaints_of(rules::documentation));
}

#[test]
fn unsafe_stands_only_where_it_may_and_says_why() {
    demand_none(&complaints_of(rules::unsafe_code));
}

#[test]
fn no_word_that_does_not_merge() {
    demand_none(&complaints_of(rules::words));
}

#[test]
fn no_unwrap_in_engine_and_server() {
    demand_none(&complaints_of(rules::unwraps));
}

#[test]
fn nothing_below_the_server_touches_the_world() {
    demand_none(&complaints_of(rules::determinism));
}

#[test]
fn the_nine_functions_of_a_put_exist() {
    demand_none(&rules::put_path(&source::all()));
}

#[test]
fn each_dependency_says_why() {
    demand_none(&rules::dependency_reasons());
}

mod rules_can_fail {
    use super::rules;
    use super::source::Source;

    fn source(path: &str, text: &str) -> Source {
        Source { path: path.to_owned(), text: text.to_owned() }
    }

    /// A rule that never complains proves nothing.
    #[test]
    fn on_texts_that_break_them() {
        let long = format!("//! Head.\nfn long() {{\n{}}}\n", "    call();\n".repeat(71));
        assert_eq!(rules::sizes(&source("engine/src/a.rs", &long)).len(), 1);
        let many = "//! Head.\nfn many(a: u8, b: u8, c: u8, d: u8, e: u8, f: u8, g: u8) {}\n";
        assert_eq!(rules::sizes(&source("engine/src/a.rs", many)).len(), 1);
        assert_eq!(rules::documentation(&source("engine/src/a.rs", "pub fn bare() {}\n")).len(), 2);
        let bare = "//! Head.\nfn f() {\n    unsafe { g() }\n}\n";
        assert_eq!(rules::unsafe_code(&source("engine/src/a.rs", bare)).len(), 1);
        assert_eq!(rules::unsafe_code(&source("engine/io/src/uring/ring.rs", bare)).len(), 2);
        let word = format!("//! Head.\n// {}: later\n", ["TO", "DO"].concat());
        assert_eq!(rules::words(&source("engine/src/a.rs", &word)).len(), 1);
        let unwrapped = "//! Head.\nfn f() {\n    g().unwrap();\n}\n#[cfg(test)]\nmod tests {}\n";
        assert_eq!(rules::unwraps(&source("server/src/a.rs", unwrapped)).len(), 1);
        let clock = "//! Head.\nuse std::time::Instant;\n";
        assert_eq!(rules::determinism(&source("engine/src/a.rs", clock)).len(), 1);
        let arrow = "//! Head.\nuse crate::lease::LeaseTable;\n";
        assert_eq!(rules::module_arrows(&source("engine/src/mvcc/a.rs", arrow)).len(), 1);
    }
}
