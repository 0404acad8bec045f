//! Case files.
//!
//! ```text
//!   # a comment
//!   == a section
//!   over tcp | over unix            which endpoint the following commands use
//!   ctl ARG...                      one etcdctl; quotes as in a shell, \n \t \xNN inside "..."
//!   < LINE                          a line for the stdin of the command above
//!   <@ COUNT TEXT                   a line of so many repetitions
//!   keep NAME                       remember the first lease id that the command above printed;
//!                                   $NAME stands for it from here on
//!   unordered                       sort the output lines of the command above
//!   raw METHOD FIELD... [; FIELD...] one gRPC call; messages separated by a semicolon
//!   http "TEXT"                     bytes for the TCP listener; \n is sent as \r\n, and an empty
//!                                   line follows where there is none
//!   start NAME ctl ARG...           an etcdctl in the background
//!   send NAME LINE                  a line for its stdin
//!   stop NAME COUNT                 wait for COUNT lines of its stdout, interrupt it, take its
//!                                   output
//!   wait NAME                       wait for its own end
//!   pause MILLISECONDS
//!   restart                         stop the server gently and start it again on the same data
//! ```

use std::path::Path;

/// One line that does something.
#[derive(Clone, Debug)]
pub struct Step {
    /// The line's number in its file.
    pub line: usize,
    /// The section it stands in.
    pub section: String,
    /// The line itself.
    pub text: String,
    /// What to do.
    pub act: Act,
}

/// What a step does.
#[derive(Clone, Debug)]
pub enum Act {
    /// Use this endpoint from now on.
    Over(Endpoint),
    /// Run etcdctl.
    Ctl(Ctl),
    /// Make a gRPC call: path, and the text of its messages.
    Raw(String, String),
    /// Send these bytes and take what comes until the server closes or is silent.
    Http(Vec<u8>),
    /// Run etcdctl in the background.
    Start(String, Ctl),
    /// Write a line to its stdin.
    Send(String, String),
    /// Wait for so many lines, interrupt, take the output.
    Stop(String, usize),
    /// Wait for its end.
    Wait(String),
    /// Do nothing for so many milliseconds.
    Pause(u64),
    /// Stop and start the server.
    Restart,
}

/// An etcdctl command.
#[derive(Clone, Debug, Default)]
pub struct Ctl {
    /// Its arguments.
    pub args: Vec<String>,
    /// Lines for its stdin.
    pub stdin: Vec<String>,
    /// The name under which the printed lease id is remembered.
    pub keep: Option<String>,
    /// Whether its lines come in no order.
    pub unordered: bool,
}

/// Where a command connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// The TCP listener.
    Tcp,
    /// The Unix socket.
    Unix,
}

/// Reads a case file.
///
/// *Errors*: the line that means nothing, and why.
pub fn read(path: &Path) -> Result<Vec<Step>, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{path:?}: {error}"))?;
    let mut steps: Vec<Step> = Vec::new();
    let mut section = String::new();
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        let place = |why: &str| format!("{}:{number}: {why}: {line}", path.display());
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(title) = line.strip_prefix("== ") {
            title.clone_into(&mut section);
            continue;
        }
        if let Some(Step { act: Act::Ctl(ctl) | Act::Start(_, ctl), .. }) = steps.last_mut()
            && decorate(ctl, line)
        {
            continue;
        }
        let act = parse(line).map_err(|why| place(&why))?;
        steps.push(Step { line: number, section: section.clone(), text: line.to_owned(), act });
    }
    Ok(steps)
}

/// Whether the line belongs to the command above it.
fn decorate(ctl: &mut Ctl, line: &str) -> bool {
    if let Some((count, text)) = line.strip_prefix("<@ ").and_then(|rest| rest.split_once(' ')) {
        ctl.stdin.push(text.repeat(count.parse().unwrap_or(0)));
    } else if let Some(text) = line.strip_prefix('<') {
        ctl.stdin.push(text.strip_prefix(' ').unwrap_or(text).to_owned());
    } else if let Some(name) = line.strip_prefix("keep ") {
        ctl.keep = Some(name.to_owned());
    } else if line == "unordered" {
        ctl.unordered = true;
    } else {
        return false;
    }
    true
}

fn parse(line: &str) -> Result<Act, String> {
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    let name_and = |rest: &str| {
        let (name, tail) = rest.split_once(' ').ok_or("a name and more is needed")?;
        Ok::<_, String>((name.to_owned(), tail.to_owned()))
    };
    match word {
        "over" if rest == "unix" => Ok(Act::Over(Endpoint::Unix)),
        "over" if rest == "tcp" => Ok(Act::Over(Endpoint::Tcp)),
        "ctl" => Ok(Act::Ctl(Ctl { args: words(rest)?, ..Ctl::default() })),
        "raw" => {
            let (method, messages) = rest.split_once(' ').unwrap_or((rest, ""));
            Ok(Act::Raw(method.to_owned(), messages.to_owned()))
        }
        "http" => match words(rest)?.as_slice() {
            [text] => Ok(Act::Http(request_bytes(text))),
            _ => Err("one text in quotes is needed".to_owned()),
        },
        "start" => {
            let (name, tail) = name_and(rest)?;
            let args = tail.strip_prefix("ctl ").ok_or("only ctl runs in the background")?;
            Ok(Act::Start(name, Ctl { args: words(args)?, ..Ctl::default() }))
        }
        "send" => name_and(rest).map(|(name, line)| Act::Send(name, line)),
        "stop" => {
            let (name, count) = name_and(rest)?;
            Ok(Act::Stop(name, count.parse().map_err(|_| "a count of lines is needed")?))
        }
        "wait" => Ok(Act::Wait(rest.to_owned())),
        "pause" => Ok(Act::Pause(rest.parse().map_err(|_| "a number is needed")?)),
        "restart" => Ok(Act::Restart),
        _ => Err("no such step".to_owned()),
    }
}

fn request_bytes(text: &str) -> Vec<u8> {
    let end = if text.contains("\n\n") { "" } else { "\n\n" };
    format!("{text}{end}").replace('\n', "\r\n").into_bytes()
}

/// Splits a line into arguments.
fn words(line: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut chars = line.chars().peekable();
    while let Some(next) = chars.peek() {
        if next.is_whitespace() {
            chars.next();
            continue;
        }
        let mut word = Vec::new();
        while let Some(&next) = chars.peek() {
            if next.is_whitespace() {
                break;
            }
            chars.next();
            match next {
                '\'' => word.extend(until(&mut chars, '\'', false)?),
                '"' => word.extend(until(&mut chars, '"', true)?),
                other => word.extend(other.to_string().into_bytes()),
            }
        }
        words.push(String::from_utf8(word).map_err(|_| "an argument that is no UTF-8")?);
    }
    Ok(words)
}

/// Takes characters up to a closing quote; with `escapes`, `\0 \n \t \" \\ \xNN` are replaced.
pub(super) fn until(
    chars: &mut std::iter::Peekable<std::str::Chars<'_>>,
    close: char,
    escapes: bool,
) -> Result<Vec<u8>, String> {
    let mut text = Vec::new();
    loop {
        let next = chars.next().ok_or("a quote is not closed")?;
        match next {
            next if next == close => return Ok(text),
            '\\' if escapes => match chars.next().ok_or("a backslash at the end")? {
                '0' => text.push(0),
                'n' => text.push(b'\n'),
                't' => text.push(b'\t'),
                'x' => {
                    let digits: String = chars.by_ref().take(2).collect();
                    text.push(u8::from_str_radix(&digits, 16).map_err(|error| error.to_string())?);
                }
                other => text.extend(other.to_string().into_bytes()),
            },
            other => text.extend(other.to_string().into_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Quotes, escapes and glued pieces.
    #[test]
    fn arguments() {
        let split = |line: &str| words(line).expect("well-formed");
        assert_eq!(split("put a  'b c'"), ["put", "a", "b c"]);
        assert_eq!(split(r#"get --x="a\tb" ''"#), ["get", "--x=a\tb", ""]);
        assert_eq!(split(r#"put "\x41\\" '\x'"#), ["put", "A\\", "\\x"]);
        assert!(words("put 'a").is_err());
        assert_eq!(request_bytes("GET /\nHost: a"), b"GET /\r\nHost: a\r\n\r\n");
        assert_eq!(request_bytes("PUT /\n\nbody"), b"PUT /\r\n\r\nbody");
    }
}
