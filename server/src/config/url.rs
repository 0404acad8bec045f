//! URLs of listeners and members, checked as etcd checks them.
//!
//! `unix:///run/x.sock` is an absolute socket path, `unix://x.sock` a relative one and `unix://@x`
//! a name in the abstract name space.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

/// How to speak over a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scheme {
    /// TCP, plaintext.
    Http,
    /// TCP with TLS.
    Https,
    /// Unix socket, plaintext.
    Unix,
    /// Unix socket with TLS.
    Unixs,
}

/// One checked URL.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Url {
    /// The scheme.
    pub scheme: Scheme,
    /// `host:port`, or the first part of a relative socket path.
    pub host: String,
    /// What follows it.
    pub path: String,
}

/// The place a URL names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Host name or address, and port text.
    Tcp(String, String),
    /// A socket file.
    Unix(PathBuf),
    /// A name in the abstract name space.
    Abstract(String),
}

impl Url {
    /// Reads one URL.
    ///
    /// # Errors
    /// etcd's text: wrong scheme, no `host:port`, or a path.
    pub fn parse(text: &str) -> Result<Url, String> {
        let text = text.trim();
        let wrong_scheme = || format!("URL scheme must be http, https, unix, or unixs: {text}");
        let Some((scheme, rest)) = text.split_once(':') else { return Err(wrong_scheme()) };
        let starts_with_letter = scheme.starts_with(|c: char| c.is_ascii_alphabetic());
        let scheme_like = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
        if scheme.is_empty() {
            return Err(format!("parse {text:?}: missing protocol scheme"));
        }
        if !starts_with_letter || !scheme.chars().all(scheme_like) {
            let why = "first path segment in URL cannot contain colon";
            return Err(format!("parse {text:?}: {why}"));
        }
        let scheme = match scheme.to_ascii_lowercase().as_str() {
            "http" => Scheme::Http,
            "https" => Scheme::Https,
            "unix" => Scheme::Unix,
            "unixs" => Scheme::Unixs,
            _ => return Err(wrong_scheme()),
        };
        let (host, path) = match rest.strip_prefix("//") {
            Some(rest) => rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len())),
            None => ("", rest),
        };
        let url = Url { scheme, host: host.to_owned(), path: path.to_owned() };
        if matches!(scheme, Scheme::Http | Scheme::Https) {
            url.check_authority(text)?;
        }
        Ok(url)
    }

    /// Reads a comma list, in order of the URLs.
    ///
    /// # Errors
    /// That of the first bad one.
    pub fn parse_list(text: &str) -> Result<Vec<Url>, String> {
        let mut urls = text.split(',').map(Url::parse).collect::<Result<Vec<Url>, String>>()?;
        urls.sort();
        urls.dedup();
        Ok(urls)
    }

    fn check_authority(&self, text: &str) -> Result<(), String> {
        let Some((_, port)) = split_host_port(&self.host) else {
            let why = "URL address does not have the form \"host:port\"";
            return Err(format!("{why}: {text}"));
        };
        if !port.bytes().all(|b| b.is_ascii_digit()) {
            return Err(format!("parse {text:?}: invalid port \":{port}\" after host"));
        }
        if self.path.starts_with('/') {
            return Err(format!("URL must not contain a path: {text}"));
        }
        Ok(())
    }

    /// Whether bytes on the socket are encrypted.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        matches!(self.scheme, Scheme::Https | Scheme::Unixs)
    }

    /// The place it names.
    #[must_use]
    pub fn place(&self) -> Place {
        match self.scheme {
            Scheme::Http | Scheme::Https => {
                let (host, port) = split_host_port(&self.host).unwrap_or((&self.host, ""));
                Place::Tcp(host.to_owned(), port.to_owned())
            }
            Scheme::Unix | Scheme::Unixs => match self.host.strip_prefix('@') {
                Some(name) => Place::Abstract(format!("{name}{}", self.path)),
                None => Place::Unix(PathBuf::from(format!("{}{}", self.host, self.path))),
            },
        }
    }

    /// Host and path without the scheme, as etcd logs a listener's address.
    #[must_use]
    pub fn address(&self) -> String {
        format!("{}{}", self.host, self.path)
    }

    /// Whether a listener can be bound to it: an IP, `localhost`, or a Unix socket with a name.
    ///
    /// # Errors
    /// etcd's text for a host name.
    pub fn check_bind(&self) -> Result<(), String> {
        match self.place() {
            Place::Tcp(host, _) if host == "localhost" || host.parse::<IpAddr>().is_ok() => Ok(()),
            Place::Tcp(..) => Err(format!("expected IP in URL for binding ({self})")),
            Place::Unix(path) if path.as_os_str().is_empty() => {
                Err(format!("expected a path or @name in URL for binding ({self})"))
            }
            Place::Abstract(name) if name.is_empty() => {
                Err(format!("expected a path or @name in URL for binding ({self})"))
            }
            Place::Unix(_) | Place::Abstract(_) => Ok(()),
        }
    }

    /// Whether others could reach it.
    ///
    /// # Errors
    /// etcd's text for an empty host.
    pub fn check_host(&self) -> Result<(), String> {
        match self.place() {
            Place::Tcp(host, _) if host.is_empty() => {
                Err(format!("unexpected empty host ({self})"))
            }
            _ => Ok(()),
        }
    }
}

/// Host and port of `host:port` or `[v6]:port`.
#[must_use]
pub fn split_host_port(text: &str) -> Option<(&str, &str)> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, port) = rest.split_once(']')?;
        return Some((host, port.strip_prefix(':')?));
    }
    let (host, port) = text.rsplit_once(':')?;
    (!host.contains(':')).then_some((host, port))
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.scheme {
            Scheme::Http => "http",
            Scheme::Https => "https",
            Scheme::Unix => "unix",
            Scheme::Unixs => "unixs",
        };
        write!(f, "{scheme}://{}{}", self.host, self.path)
    }
}

/// URLs as texts.
#[must_use]
pub fn texts(urls: &[Url]) -> Vec<String> {
    urls.iter().map(Url::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each refusal has etcd's words.
    #[test]
    fn refusals() {
        let scheme = "URL scheme must be http, https, unix, or unixs: ";
        let form = "URL address does not have the form \"host:port\": ";
        let rows = [
            ("foo", format!("{scheme}foo")),
            ("", scheme.to_owned()),
            ("foo:80", format!("{scheme}foo:80")),
            ("ftp://a:1", format!("{scheme}ftp://a:1")),
            ("http://b", format!("{form}http://b")),
            ("http://a:1/x", "URL must not contain a path: http://a:1/x".to_owned()),
            (
                "127.0.0.1:80",
                "parse \"127.0.0.1:80\": first path segment in URL cannot contain colon".to_owned(),
            ),
            ("http://a:b", "parse \"http://a:b\": invalid port \":b\" after host".to_owned()),
        ];
        for (text, error) in rows {
            assert_eq!(Url::parse(text), Err(error));
        }
    }

    /// Places of TCP and of the three kinds of Unix URL.
    #[test]
    fn places() {
        let place = |text: &str| Url::parse(text).expect("a good URL").place();
        let tcp = |host: &str, port: &str| Place::Tcp(host.to_owned(), port.to_owned());
        assert_eq!(place("http://127.0.0.1:2379"), tcp("127.0.0.1", "2379"));
        assert_eq!(place("http://[::1]:2379"), tcp("::1", "2379"));
        assert_eq!(place("unix:///run/x.sock"), Place::Unix("/run/x.sock".into()));
        assert_eq!(place("unix://x.sock"), Place::Unix("x.sock".into()));
        assert_eq!(place("unix://a/x.sock"), Place::Unix("a/x.sock".into()));
        assert_eq!(place("unix://@x"), Place::Abstract("x".to_owned()));
    }

    /// A listener needs an IP or localhost.
    #[test]
    fn binding() {
        let check = |text: &str| Url::parse(text).expect("a good URL").check_bind();
        assert_eq!(check("http://localhost:1"), Ok(()));
        assert_eq!(check("http://[::]:1"), Ok(()));
        let error = "expected IP in URL for binding (http://example.com:41001)";
        assert_eq!(check("http://example.com:41001"), Err(error.to_owned()));
        let error = "expected IP in URL for binding (http://:2379)";
        assert_eq!(check("http://:2379"), Err(error.to_owned()));
        assert!(check("unix://").is_err());
    }
}
