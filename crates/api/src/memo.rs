//! Remembers answers that depend on nothing but the state and the configuration, as long as the state stays as it is.
//!
//! Between two records of the log a document is made once, however often it is asked for. What is remembered is a
//! cache: it may be thrown away at any time, and is when it grows too large.

use actix_web::HttpResponse;
use actix_web::body::{BoxBody, MessageBody};
use actix_web::http::header::{HeaderName, HeaderValue};
use actix_web::web::Bytes;
use segue_domain::event::Position;
use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

/// How much is remembered in all.
const BYTES_MAX: usize = 32 * 1024 * 1024;
/// Larger answers cost more to send than to make.
const ANSWER_BYTES_MAX: usize = 256 * 1024;
/// What an answer costs beside its body and its key, roughly.
const ENTRY_BYTES: usize = 512;

/// Answers by what was asked.
#[derive(Default)]
pub struct Memo {
    answers: RwLock<Answers>,
}

#[derive(Default)]
struct Answers {
    by_question: HashMap<String, Remembered>,
    bytes: usize,
}

struct Remembered {
    /// The position of the state that the answer was made from.
    position: Position,
    headers: Vec<(HeaderName, HeaderValue)>,
    body: Bytes,
}

impl Memo {
    /// The answer to `question`, when it was made from the state at `position`.
    pub fn find(&self, question: &str, position: Position) -> Option<HttpResponse> {
        let answers = self.answers.read().unwrap_or_else(PoisonError::into_inner);
        let found = answers.by_question.get(question).filter(|found| found.position == position)?;
        let mut response = HttpResponse::Ok();
        for header in &found.headers {
            response.insert_header(header.clone());
        }
        Some(response.body(found.body.clone()))
    }

    /// Remembers `response`, which was made from the state at `position` or a later one, and gives it back.
    pub fn keep(
        &self,
        question: String,
        position: Position,
        response: HttpResponse,
    ) -> HttpResponse {
        let (response, body) = response.into_parts();
        let body = match body.try_into_bytes() {
            Ok(body) => body,
            Err(body) => return response.set_body(body),
        };
        if body.len() <= ANSWER_BYTES_MAX {
            let headers =
                response.headers().iter().map(|(name, value)| (name.clone(), value.clone()));
            let remembered =
                Remembered { position, headers: headers.collect(), body: body.clone() };
            self.answers
                .write()
                .unwrap_or_else(PoisonError::into_inner)
                .insert(question, remembered);
        }
        response.set_body(BoxBody::new(body))
    }
}

impl Answers {
    fn insert(&mut self, question: String, remembered: Remembered) {
        let rest = ENTRY_BYTES + question.len();
        if let Some(old) = self.by_question.remove(&question) {
            self.bytes -= rest + old.body.len();
        }
        let size = rest + remembered.body.len();
        if self.bytes + size > BYTES_MAX {
            *self = Self::default();
        }
        self.bytes += size;
        self.by_question.insert(question, remembered);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_found_as_long_as_the_state_stays() {
        let memo = Memo::default();
        let made = HttpResponse::Ok().insert_header(("ETag", "\"7\"")).body("text");
        let kept = memo.keep("a".to_owned(), Position(7), made);
        assert_eq!(kept.headers().get("etag").unwrap(), "\"7\"");
        let found = memo.find("a", Position(7)).unwrap();
        assert_eq!(found.headers().get("etag").unwrap(), "\"7\"");
        assert_eq!(found.into_body().try_into_bytes().unwrap(), "text");
        assert!(memo.find("a", Position(8)).is_none());
        assert!(memo.find("b", Position(7)).is_none());
    }

    #[test]
    fn what_is_remembered_anew_counts_once() {
        let memo = Memo::default();
        for number in 1..100 {
            let body = "x".repeat(number);
            memo.keep("question".to_owned(), Position(7), HttpResponse::Ok().body(body));
        }
        let bytes = memo.answers.read().unwrap().bytes;
        assert_eq!(bytes, ENTRY_BYTES + "question".len() + 99);
    }

    #[test]
    fn no_more_is_remembered_than_allowed() {
        let memo = Memo::default();
        let body = "x".repeat(ANSWER_BYTES_MAX);
        for number in 0..1000 {
            memo.keep(number.to_string(), Position(1), HttpResponse::Ok().body(body.clone()));
            assert!(memo.answers.read().unwrap().bytes <= BYTES_MAX);
        }
        memo.keep("large".to_owned(), Position(1), HttpResponse::Ok().body(body + "x"));
        assert!(memo.find("large", Position(1)).is_none());
        assert!(memo.find("999", Position(1)).is_some());
    }
}
