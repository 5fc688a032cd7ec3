//! One check: a connection, or a request and the first line of its answer.

use super::{Check, Protocol};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

/// How much of an answer is looked at: enough for its first line.
const ANSWER_BYTES: u64 = 64;

/// Asks once; an error says in words what is wrong.
pub(super) async fn probe(check: &Check) -> Result<(), String> {
    let asked = async {
        let mut stream = TcpStream::connect((check.host.as_str(), check.port)).await?;
        match &check.protocol {
            Protocol::Tcp => Ok(None),
            Protocol::Http(path) => ask(&mut stream, check, path).await.map(Some),
        }
    };
    let answer: std::io::Result<Option<String>> = tokio::time::timeout(check.timeout, asked)
        .await
        .map_err(|_| format!("no answer within {} s", check.timeout.as_secs()))?;
    match answer.map_err(|error| error.to_string())? {
        None => Ok(()),
        Some(answer) => judge(&answer),
    }
}

async fn ask(stream: &mut TcpStream, check: &Check, path: &str) -> std::io::Result<String> {
    // A path cannot add a header.
    let path: String = path.chars().filter(|c| !c.is_control() && !c.is_whitespace()).collect();
    let slash = if path.starts_with('/') { "" } else { "/" };
    let (host, port) = (&check.host, check.port);
    let request = format!(
        "GET {slash}{path} HTTP/1.1\r\nHost: {host}:{port}\r\nUser-Agent: segue\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    // Whoever keeps the connection open says no more after a short answer.
    let read = BufReader::new(stream.take(ANSWER_BYTES)).read_until(b'\n', &mut answer).await;
    match read {
        // Whoever breaks the connection after the first line has answered.
        Err(error) if !answer.ends_with(b"\n") => Err(error),
        _ => Ok(String::from_utf8_lossy(&answer).into_owned()),
    }
}

/// An answer is good with a status from 200 to 399.
fn judge(answer: &str) -> Result<(), String> {
    let status = answer.strip_prefix("HTTP/").and_then(|rest| rest.split(' ').nth(1));
    match status.and_then(|status| status.get(..3)?.parse::<u16>().ok()) {
        Some(200..=399) => Ok(()),
        Some(status) => Err(format!("it answers with status {status}")),
        None => Err("its answer is no HTTP".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_answers_have_a_status_below_400() {
        let check = |answer: &str, expected: Result<(), &str>| {
            assert_eq!(judge(answer), expected.map_err(str::to_owned), "{answer}");
        };
        check("HTTP/1.1 200 OK\r\n", Ok(()));
        check("HTTP/1.0 302 Found", Ok(()));
        check("HTTP/1.1 404 Not Found", Err("it answers with status 404"));
        check("HTTP/1.1 500", Err("it answers with status 500"));
        check("HTTP/1.1 100 Continue", Err("it answers with status 100"));
        check("SSH-2.0", Err("its answer is no HTTP"));
        check("HTTP/1.1", Err("its answer is no HTTP"));
        check("", Err("its answer is no HTTP"));
    }
}
