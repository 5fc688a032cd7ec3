//! A client of the REST API: JSON in, JSON out, and errors in the words of the service.

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use std::net::SocketAddr;
use std::time::Duration;
use ureq::Agent;
use ureq::http::{Request, Response};

/// The longest a single request may take; the service itself gives up after 10 s.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(15);
/// How many pages of one list are read.
const PAGES_MAX: u32 = 100;
/// The largest page that the service gives.
const PER_PAGE_MAX: u32 = 1_000;

/// Speaks with one service.
#[derive(Clone, Debug)]
pub struct Api {
    agent: Agent,
    base: String,
}

impl Api {
    /// For the service at `address`.
    pub fn new(address: SocketAddr) -> Self {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .allow_non_standard_methods(true)
            .proxy(None)
            .timeout_global(Some(REQUEST_TIME_MAX))
            .build();
        Self { agent: config.into(), base: format!("http://{address}") }
    }

    /// The root of all paths.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// The status of `path`, whatever it is.
    pub fn status(&self, path: &str) -> Result<u16> {
        Ok(self.agent.get(self.url(path)).call()?.status().as_u16())
    }

    /// What is at `path`, and `None` for 404.
    pub fn find(&self, path: &str) -> Result<Option<Value>> {
        let (status, body) = read(self.agent.get(self.url(path)).call()?)?;
        match status {
            200 => parse(&body).map(Some),
            404 => Ok(None),
            _ => bail!("GET {path}: {}", refusal(status, &body)),
        }
    }

    /// What is at `path`.
    pub fn get(&self, path: &str) -> Result<Value> {
        self.find(path)?.with_context(|| format!("GET {path}: 404, there is nothing"))
    }

    /// Sends a document; another status than `expected` is an error.
    pub fn send(&self, method: &str, path: &str, document: &Value, expected: u16) -> Result<Value> {
        let request = Request::builder()
            .method(method)
            .uri(self.url(path))
            .header("Content-Type", "application/json")
            .body(document.to_string())
            .with_context(|| format!("{method} {path} is no request"))?;
        let (status, body) = read(
            self.agent.run(request).with_context(|| format!("{method} {path} was not answered"))?,
        )?;
        ensure!(
            status == expected,
            "{method} {path}: {}, but {expected} was expected",
            refusal(status, &body)
        );
        if body.trim().is_empty() { Ok(Value::Null) } else { parse(&body) }
    }

    /// Every item of a paged list, following `Link`.
    pub fn list(&self, path: &str) -> Result<Vec<Value>> {
        let sign = if path.contains('?') { '&' } else { '?' };
        let mut items = Vec::new();
        let mut page = 1;
        let mut url = format!("{}{sign}page=1&per_page={PER_PAGE_MAX}", self.url(path));
        loop {
            let response = self.agent.get(&url).call()?;
            let link = response
                .headers()
                .get("Link")
                .and_then(|value| value.to_str().ok())
                .map(str::to_owned);
            let (status, body) = read(response)?;
            ensure!(status == 200, "GET {url}: {}", refusal(status, &body));
            match parse(&body)? {
                Value::Array(part) => items.extend(part),
                other => bail!("GET {url}: a list was expected, not {other}"),
            }
            match link.as_deref().and_then(next_page).filter(|(number, _)| *number > page) {
                None => return Ok(items),
                Some((number, next)) => (page, url) = (number, next),
            }
            ensure!(page <= PAGES_MAX, "GET {path}: more than {PAGES_MAX} pages");
        }
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }
}

fn read(mut response: Response<ureq::Body>) -> Result<(u16, String)> {
    let body = response.body_mut().read_to_string().context("the answer broke off")?;
    Ok((response.status().as_u16(), body))
}

fn parse(body: &str) -> Result<Value> {
    serde_json::from_str(body).with_context(|| format!("the answer is no JSON: {body}"))
}

/// The problem document's own words, or whatever the answer says.
fn refusal(status: u16, body: &str) -> String {
    let problem: Value = serde_json::from_str(body).unwrap_or_default();
    let words = problem["message"].as_str().unwrap_or(body);
    format!("{status} {words}")
}

/// Number and address of the next page; on the last page that is the page itself.
fn next_page(link: &str) -> Option<(u32, String)> {
    let next = link
        .split(", <")
        .map(|part| part.trim_start_matches('<'))
        .find(|part| part.contains("rel=next"))?;
    let url = next.split('>').next()?;
    let query = url.split_once('?')?.1;
    let page = query.split('&').find_map(|pair| pair.strip_prefix("page="))?;
    Some((page.parse().ok()?, url.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_page_is_found_in_link() {
        let link = "<http://h/e?per_page=2&page=1>; rel=first, <http://h/e?per_page=2&page=1>; rel=prev, \
                    <http://h/e?per_page=2&page=2>; rel=next, <http://h/e?per_page=2&page=9>; rel=last";
        assert_eq!(next_page(link), Some((2, "http://h/e?per_page=2&page=2".to_owned())));
        assert_eq!(next_page("<http://h/e>; rel=first"), None);
    }

    #[test]
    fn a_refusal_is_told_in_the_services_words() {
        assert_eq!(refusal(400, r#"{"message":"no such breed"}"#), "400 no such breed");
        assert_eq!(refusal(502, "Bad Gateway"), "502 Bad Gateway");
    }
}
