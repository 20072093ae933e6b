//! What an answer of the endpoint says.

use bytes::Bytes;
use http::{Response, StatusCode};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::Value;
use skein_shared::memory::{Model, Vector};

use super::error::Error;
use crate::https::retry_after;

/// As much of an endpoint's own words as is passed on, characters.
const WORDS: usize = 200;

#[derive(Deserialize)]
struct Answer {
    data: Vec<Embedded>,
}

#[derive(Deserialize)]
struct Embedded {
    /// Which of the texts it is of; they come in their order where it does not say.
    index: Option<usize>,
    embedding: Vec<f32>,
}

/// The vectors of so many texts, in their order.
pub(super) fn vectors(
    answer: &Response<Bytes>,
    texts: usize,
    model: &Model,
    key: Option<&SecretString>,
) -> Result<Vec<Vector>, Error> {
    let status = answer.status();
    if status == StatusCode::TOO_MANY_REQUESTS || status == StatusCode::SERVICE_UNAVAILABLE {
        return Err(Error::Busy { pause: retry_after(answer) });
    }
    if status != StatusCode::OK {
        return Err(Error::Refused { status: status.as_u16(), said: words(answer.body(), key) });
    }
    let garbled = |problem: String| Error::Garbled(problem);
    let answer: Answer = serde_json::from_slice(answer.body())
        .map_err(|_| garbled("it is not a list of embeddings in JSON".to_owned()))?;
    let mut placed: Vec<Option<Vector>> = vec![None; texts];
    for (place, Embedded { index, embedding }) in answer.data.into_iter().enumerate() {
        let wanted = model.dimensions.map_or(embedding.len(), |wanted| wanted as usize);
        if embedding.len() != wanted {
            let got = embedding.len();
            return Err(garbled(format!("a vector has {got} dimensions and {wanted} were asked for")));
        }
        let vector = Vector::of(&embedding).map_err(|refusal| garbled(refusal.message))?;
        let slot = placed.get_mut(index.unwrap_or(place)).filter(|slot| slot.is_none());
        *slot.ok_or_else(|| garbled("it has a vector for no text".to_owned()))? = Some(vector);
    }
    let vectors: Option<Vec<Vector>> = placed.into_iter().collect();
    vectors.ok_or_else(|| garbled("it lacks the vector of a text".to_owned()))
}

/// The endpoint's own words about why it refuses. Some say the key that they do not know.
fn words(body: &[u8], key: Option<&SecretString>) -> String {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let said = body["error"]["message"].as_str().or_else(|| body["error"].as_str()).unwrap_or_default();
    let said = match key.map(ExposeSecret::expose_secret).filter(|key| !key.is_empty()) {
        Some(key) => said.replace(key, "…"),
        None => said.to_owned(),
    };
    said.chars().take(WORDS).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(status: u16, body: &Value, texts: usize, dimensions: Option<u32>) -> Result<Vec<Vector>, Error> {
        let answer = Response::builder().status(status).body(Bytes::from(body.to_string())).unwrap();
        let model = Model { name: "m".to_owned(), dimensions };
        vectors(&answer, texts, &model, Some(&SecretString::from("hush")))
    }

    #[test]
    fn vectors_come_in_the_order_of_their_texts() {
        let body = json!({"data": [{"index": 1, "embedding": [0, 1]}, {"index": 0, "embedding": [1, 0]}]});
        let codes: Vec<_> =
            read(200, &body, 2, Some(2)).unwrap().iter().map(|one| one.codes().to_vec()).collect();
        assert_eq!(codes, [[127, 0], [0, 127]]);
        let plain = json!({"data": [{"embedding": [1, 0, 0]}]});
        assert_eq!(read(200, &plain, 1, None).unwrap()[0].codes().len(), 3);
    }

    #[test]
    fn garbage_is_told_from_vectors() {
        let one = |embedding: Value| json!({"data": [{"index": 0, "embedding": embedding}]});
        for (body, problem) in [
            (json!("hello"), "not a list"),
            (json!({"data": []}), "lacks"),
            (one(json!([1, "x"])), "not a list"),
            (one(json!([0, 0])), "zeros"),
            (one(json!([1, 2, 3])), "3 dimensions and 2"),
            (json!({"data": [{"index": 7, "embedding": [1, 2]}]}), "no text"),
            (
                json!({"data": [{"index": 0, "embedding": [1, 2]}, {"index": 0, "embedding": [1, 2]}]}),
                "no text",
            ),
        ] {
            let error = read(200, &body, 1, Some(2)).unwrap_err();
            let said = error.to_string();
            assert!(matches!(error, Error::Garbled(_)) && said.contains(problem), "{problem}: {said}");
        }
    }

    #[test]
    fn a_refusal_is_passed_on_without_the_key() {
        let refused = read(401, &json!({"error": {"message": "there is no key hush"}}), 1, None).unwrap_err();
        assert_eq!(refused.to_string(), "the embeddings endpoint refused with status 401: there is no key …");
        assert!(!refused.blames_texts());
        assert!(read(400, &json!({"error": "too long"}), 1, None).unwrap_err().blames_texts());
        assert!(matches!(read(429, &json!({}), 1, None), Err(Error::Busy { pause: None })));
    }
}
