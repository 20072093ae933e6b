//! Asks the gateway: one request over HTTP/1.0 on a connection of its own, with a limit to all of it.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::command::Request;
use crate::exit::{self, Failure};
use crate::json;

const CONNECT: Duration = Duration::from_secs(5);
/// All that a request takes, besides what it asks to wait.
const TOTAL: Duration = Duration::from_secs(10);
/// Longest answer that is read: a value of 16 MiB, of which JSON may take six bytes for each.
const ANSWER: usize = 100 << 20;

/// Where the gateway is, and what opens it.
#[derive(Debug)]
pub(crate) struct Gateway {
    address: SocketAddr,
    token: String,
}

impl Gateway {
    /// What a runner tells its instances: SKEIN_URL, the address for MCP, beside which the gateway's routes are, and
    /// SKEIN_TOKEN.
    pub(crate) fn of_environment() -> Result<Self, Failure> {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let (Some(url), Some(token)) = (variable("SKEIN_URL"), variable("SKEIN_TOKEN")) else {
            let problem = "no gateway is configured, so nothing was done; SKEIN_URL and SKEIN_TOKEN are set where a runner starts an agent";
            return Err(Failure::new(exit::UNAVAILABLE, problem));
        };
        if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(Failure::new(
                exit::UNAVAILABLE,
                "SKEIN_TOKEN is no token; leave it as the runner sets it",
            ));
        }
        Ok(Self { address: address(&url)?, token })
    }

    /// Sends a request and gives the JSON of a success. `patience` is how long the gateway may wait with its answer.
    pub(crate) fn ask(&self, request: &Request, patience: Duration) -> Result<String, Failure> {
        self.ask_within(request, TOTAL + patience)
    }

    /// The same with another limit to all of it.
    pub(crate) fn ask_within(&self, request: &Request, limit: Duration) -> Result<String, Failure> {
        let answer = self.exchange(request, limit).map_err(|error| self.unreachable(request, &error))?;
        let (status, body) = parse(&answer).ok_or_else(|| {
            let problem = format!("what answers at {} is no gateway of Skein", self.address);
            Failure::new(exit::UNEXPECTED, problem)
        })?;
        // A lock that was refused must never pass for one that was granted, whoever answers.
        let granted = request.body.is_none()
            || ["ok", "killed"].iter().any(|name| json::field(body, name) == Some("true"));
        match status {
            200 if json::is_whole(body) && granted => Ok(body.trim().to_owned()),
            200 => Err(Failure::new(
                exit::UNEXPECTED,
                "the gateway's answer is cut off, or is none of its answers",
            )),
            refused if json::is_whole(body) => Err(Failure::answered(refused, body.trim())),
            refused => Err(Failure::answered(
                refused,
                &format!("{{\"error\":\"the gateway answered with status {refused}\"}}"),
            )),
        }
    }

    #[expect(clippy::disallowed_methods, reason = "this program has no clock but the system's")]
    fn exchange(&self, request: &Request, limit: Duration) -> std::io::Result<Vec<u8>> {
        let end = Instant::now() + limit;
        let left = || -> std::io::Result<Option<Duration>> {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
        };
        let mut stream = TcpStream::connect_timeout(&self.address, CONNECT.min(limit))?;
        stream.set_write_timeout(left()?)?;
        stream.write_all(self.head(request).as_bytes())?;
        stream.write_all(request.body.as_deref().unwrap_or_default().as_bytes())?;
        let (mut answer, mut piece) = (Vec::new(), [0; 8192]);
        loop {
            stream.set_read_timeout(left()?)?;
            match stream.read(&mut piece) {
                Ok(0) => return Ok(answer),
                Ok(_) if answer.len() > ANSWER => return Err(ErrorKind::FileTooLarge.into()),
                Ok(length) => answer.extend_from_slice(&piece[..length]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// HTTP/1.0: the answer ends with the connection, in one piece.
    fn head(&self, request: &Request) -> String {
        let method = if request.body.is_some() { "POST" } else { "GET" };
        let length = request.body.as_deref().map_or(0, str::len);
        format!(
            "{method} {} HTTP/1.0\r\nHost: {}\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n",
            request.path, self.address, self.token
        )
    }

    fn unreachable(&self, request: &Request, error: &std::io::Error) -> Failure {
        let address = self.address;
        let unknown = match error.kind() {
            ErrorKind::ConnectionRefused => "; nothing was done",
            _ if request.body.is_some() => {
                "; whether it was done is not known, and asking again is safe for locks"
            }
            _ => "",
        };
        Failure::new(
            exit::UNREACHABLE,
            format!("the gateway at {address} did not answer: {}{unknown}", said(error)),
        )
    }
}

fn said(error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => "its time is over".to_owned(),
        _ => error.to_string(),
    }
}

/// The address in a URL. Names are not looked up: a static program in a bare container has nothing to do it with.
fn address(url: &str) -> Result<SocketAddr, Failure> {
    let host = url.strip_prefix("http://").map(|rest| rest.split('/').next().unwrap_or(rest));
    let host = host.map(|host| host.replace("localhost", "127.0.0.1"));
    let with_port = host.and_then(|host| host.parse().or_else(|_| format!("{host}:80").parse()).ok());
    with_port.ok_or_else(|| {
        let problem = "SKEIN_URL is no address of a gateway, so nothing was done; it begins with http:// and an IP address, as the runner sets it";
        Failure::new(exit::UNAVAILABLE, problem)
    })
}

/// The status and the body of an answer.
fn parse(answer: &[u8]) -> Option<(u16, &str)> {
    let answer = std::str::from_utf8(answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.strip_prefix("HTTP/1.")?.split(' ').nth(1)?;
    Some((status.get(..3)?.parse().ok()?, body))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// Answers the requests that come with these, one each, and gives what was asked.
    fn gateway(answers: Vec<&'static str>) -> (Gateway, std::thread::JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let serving = std::thread::spawn(move || {
            let serve = |answer: &str| {
                let (mut stream, _) = listener.accept().unwrap();
                let (mut asked, mut piece) = (String::new(), [0; 4096]);
                while !asked.contains("\r\n\r\n") || asked.contains("POST") && !asked.ends_with('}') {
                    let length = stream.read(&mut piece).unwrap();
                    asked.push_str(std::str::from_utf8(&piece[..length]).unwrap());
                }
                stream.write_all(answer.as_bytes()).unwrap();
                asked
            };
            answers.into_iter().map(serve).collect()
        });
        (Gateway { address, token: "secret".to_owned() }, serving)
    }

    fn lock() -> Request {
        Request { path: "/locks/acquire".to_owned(), body: Some(r#"{"resourceKey":"a:b"}"#.to_owned()) }
    }

    #[test]
    fn a_clear_success_alone_is_one() {
        let answers = [
            ("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n{\"ok\":true}", None),
            ("HTTP/1.0 200 OK\r\n\r\n{\"ok\":true,\"resourceKe", Some(exit::UNEXPECTED)),
            ("HTTP/1.0 200 OK\r\n\r\n{\"ok\":false}", Some(exit::UNEXPECTED)),
            ("HTTP/1.0 200 OK\r\n\r\n<html>log in</html>", Some(exit::UNEXPECTED)),
            ("HTTP/1.0 204 No Content\r\n\r\n", Some(exit::UNEXPECTED)),
            ("HTTP/1.0 409 Conflict\r\n\r\n{\"ok\":false,\"holder\":\"x\"}", Some(exit::CONFLICT)),
            ("HTTP/1.0 503 Unavailable\r\n\r\nlater", Some(exit::UNAVAILABLE)),
            ("SSH-2.0-x\r\n", Some(exit::UNEXPECTED)),
            ("", Some(exit::UNEXPECTED)),
        ];
        let (gateway, serving) = gateway(answers.iter().map(|(answer, _)| *answer).collect());
        for (answer, status) in answers {
            let said = gateway.ask(&lock(), Duration::ZERO);
            assert_eq!(said.as_ref().err().map(|failure| failure.status), status, "{answer}");
            if let Err(failure) = said {
                assert!(json::is_whole(&failure.json()), "{}", failure.json());
            }
        }
        let asked = serving.join().unwrap().remove(0);
        assert!(asked.starts_with("POST /locks/acquire HTTP/1.0\r\n"), "{asked}");
        assert!(
            asked.contains("Authorization: Bearer secret\r\n") && asked.ends_with(r#"{"resourceKey":"a:b"}"#),
            "{asked}"
        );
    }

    #[test]
    fn a_wait_for_calls_outlasts_a_gateway_that_cannot_answer_just_now() {
        let over = "{\"status\":\"completed\",\"returnValue\":\"x\"}";
        let completed = "HTTP/1.0 200 OK\r\n\r\n{\"status\":\"completed\",\"returnValue\":\"x\"}";
        let (gateway, serving) = gateway(vec!["HTTP/1.0 503 Unavailable\r\n\r\nlater", completed]);
        let calls = ["7".to_owned()];
        let waited = crate::wait(&gateway, &calls, Duration::from_secs(60));
        assert_eq!(waited, Ok((format!("{{\"7\":{over}}}"), exit::OK)));
        assert_eq!(serving.join().unwrap().len(), 2);

        let (gateway, _serving) = self::gateway(vec!["HTTP/1.0 404 Not Found\r\n\r\n{\"ok\":false}"]);
        let refused = crate::wait(&gateway, &calls, Duration::from_secs(60)).unwrap_err();
        assert_eq!(refused.status, exit::NOT_FOUND, "it is no call of ours, however long we wait");
    }

    #[test]
    fn a_hook_is_answered_by_what_the_gateway_says_and_by_nothing_when_it_says_nothing() {
        let session = format!("gateway-{}", std::process::id());
        let event =
            format!(r#"{{"hook_event_name":"PreToolUse","session_id":"{session}","tool_name":"Bash"}}"#);
        let block = "HTTP/1.0 200 OK\r\n\r\n{\"ok\":true,\"block\":\"it was cancelled\"}";
        let (gateway, serving) = gateway(vec![block, "HTTP/1.0 503 Unavailable\r\n\r\nlater"]);
        let said = crate::answer(&event, Some(&gateway));
        assert!(
            said.contains(r#""permissionDecision":"deny""#) && said.contains("it was cancelled"),
            "{said}"
        );
        assert_eq!(crate::answer(&event, Some(&gateway)), "");
        let asked = serving.join().unwrap().remove(0);
        assert!(asked.starts_with("POST /hook HTTP/1.0") && !asked.contains(&session), "{asked}");

        // Somebody who takes requests and never answers, asked at once in another session.
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let gateway = Gateway { address: silent.local_addr().unwrap(), token: "secret".to_owned() };
        let other = format!("{session}-other");
        assert_eq!(crate::answer(&event.replace(&session, &other), Some(&gateway)), "");
        silent.set_nonblocking(true).unwrap();
        assert!(silent.accept().is_ok(), "it was not asked");
        assert_eq!(crate::answer(&event, None), "");
        for session in [session, other] {
            std::fs::remove_file(crate::hook::state::file(&std::env::temp_dir(), &session, "")).unwrap();
        }
    }

    #[test]
    fn nobody_at_the_address_is_a_failure() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let failure =
            Gateway { address, token: "secret".to_owned() }.ask(&lock(), Duration::ZERO).unwrap_err();
        assert_eq!(failure.status, exit::UNREACHABLE);
        assert!(failure.json().contains("nothing was done") && !failure.json().contains("secret"));
    }

    #[test]
    fn an_address_is_read_from_the_url() {
        for (url, wanted) in [
            ("http://127.0.0.1:7700/mcp", "127.0.0.1:7700"),
            ("http://localhost:7700/mcp", "127.0.0.1:7700"),
            ("http://[::1]:8/mcp", "[::1]:8"),
            ("http://10.0.0.1/mcp", "10.0.0.1:80"),
        ] {
            assert_eq!(address(url).unwrap(), wanted.parse().unwrap(), "{url}");
        }
        for bad in ["", "https://127.0.0.1:1/mcp", "http://skein.example/mcp", "127.0.0.1:1"] {
            assert_eq!(address(bad).unwrap_err().status, exit::UNAVAILABLE, "{bad}");
        }
    }
}
