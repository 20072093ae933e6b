//! What a text means, as a point in a space: how it is kept small and how two are compared.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

use crate::code::{Code, Refusal};

/// Most dimensions of a vector.
pub const DIMENSIONS: usize = 4096;

/// What made a vector. Vectors of different models say nothing about one another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Model {
    pub name: String,
    /// What the model was asked for, if it was asked for something.
    pub dimensions: Option<u32>,
}

impl Model {
    /// What the memory knows it by.
    pub fn id(&self) -> Uuid {
        let dimensions = self.dimensions.unwrap_or_default();
        Uuid::new_v5(&Uuid::NAMESPACE_OID, format!("{dimensions} {}", self.name).as_bytes())
    }
}

/// A vector of length 1 in one byte a dimension: each is a signed code, which times the scale is its value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Vector {
    scale: f32,
    /// In base64, which a document holds better than numbers.
    #[serde(serialize_with = "to_base64", deserialize_with = "from_base64")]
    codes: Vec<u8>,
}

impl Vector {
    /// Takes a vector of any length for its direction.
    ///
    /// # Errors
    /// `invalid_argument` when it has none: no or too many dimensions, a number that is not finite, or nothing but
    /// zeros.
    pub fn of(values: &[f32]) -> Result<Self, Refusal> {
        let wrong = |problem: String| Refusal::new(Code::InvalidArgument, problem);
        if values.is_empty() || values.len() > DIMENSIONS {
            let count = values.len();
            return Err(wrong(format!("a vector of {count} dimensions; it must have 1 to {DIMENSIONS}")));
        }
        if !values.iter().all(|value| value.is_finite()) {
            return Err(wrong("a vector with a number that is not finite".to_owned()));
        }
        let length = values.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt();
        let largest = values.iter().map(|value| f64::from(value.abs())).fold(0.0, f64::max);
        if largest == 0.0 {
            return Err(wrong("a vector of nothing but zeros".to_owned()));
        }
        let code = |value: &f32| {
            #[allow(clippy::cast_possible_truncation, reason = "at most 127 by its making")]
            let code = (f64::from(*value) / largest * 127.0).round() as i8;
            code.cast_unsigned()
        };
        #[allow(clippy::cast_possible_truncation, reason = "an f32 is as much as the codes are worth")]
        let scale = (largest / length / 127.0) as f32;
        Ok(Self { scale, codes: values.iter().map(code).collect() })
    }

    pub fn scale(&self) -> f32 {
        self.scale
    }

    pub fn codes(&self) -> &[u8] {
        &self.codes
    }

    /// The cosine of the angle between this one and another, given by its parts; none when that has other dimensions.
    pub fn cosine(&self, scale: f32, codes: &[u8]) -> Option<f32> {
        (codes.len() == self.codes.len()).then(|| {
            #[allow(clippy::cast_precision_loss, reason = "a small loss beside that of the codes")]
            let product = product(&self.codes, codes) as f32;
            (product * self.scale * scale).clamp(-1.0, 1.0)
        })
    }
}

/// At most 127² times [`DIMENSIONS`], which an `i32` holds. The products fit 16 bits, so that the machine does many at
/// a time.
fn product(one: &[u8], other: &[u8]) -> i32 {
    let widen = |code: &u8| i32::from(i16::from(code.cast_signed()));
    one.iter().zip(other).map(|(one, other)| widen(one) * widen(other)).sum()
}

fn to_base64<S: Serializer>(codes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&STANDARD.encode(codes))
}

fn from_base64<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    STANDARD.decode(String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn exact(one: &[f32], other: &[f32]) -> f64 {
        let dot = |a: &[f32], b: &[f32]| -> f64 {
            a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
        };
        dot(one, other) / (dot(one, one) * dot(other, other)).sqrt()
    }

    fn any_vector(dimensions: usize) -> impl Strategy<Value = Vec<f32>> {
        prop::collection::vec(-1.0f32..1.0, dimensions)
            .prop_filter("a direction", |values| values.iter().any(|value| value.abs() > 0.01))
    }

    proptest! {
        #[test]
        fn a_byte_a_dimension_keeps_the_angle(one in any_vector(64), other in any_vector(64), stretch in 0.01f32..1000.0) {
            let stretched: Vec<f32> = one.iter().map(|value| value * stretch).collect();
            let (kept, compared) = (Vector::of(&stretched).unwrap(), Vector::of(&other).unwrap());
            let cosine = kept.cosine(compared.scale(), compared.codes()).unwrap();
            prop_assert!((f64::from(cosine) - exact(&one, &other)).abs() < 0.02, "{cosine}");
            prop_assert!(kept.cosine(kept.scale(), kept.codes()).unwrap() > 0.99);
            let text = serde_json::to_string(&kept).unwrap();
            prop_assert_eq!(serde_json::from_str::<Vector>(&text).unwrap(), kept);
        }
    }

    #[test]
    fn what_has_no_direction_is_refused() {
        for bad in [vec![], vec![0.0; 3], vec![1.0, f32::NAN], vec![f32::INFINITY], vec![1.0; DIMENSIONS + 1]]
        {
            assert_eq!(Vector::of(&bad).unwrap_err().code, Code::InvalidArgument);
        }
        let extreme = Vector::of(&[f32::MAX, f32::MIN, f32::MIN_POSITIVE]).unwrap();
        assert_eq!(extreme.codes(), [127, 129, 0]);
        assert_eq!(extreme.cosine(1.0, &[1, 2]), None, "of other dimensions");
    }

    #[test]
    fn a_model_is_its_name_and_what_it_was_asked_for() {
        let model = |name: &str, dimensions| Model { name: name.into(), dimensions }.id();
        assert_ne!(model("a", None), model("b", None));
        assert_ne!(model("a", None), model("a", Some(512)));
        assert_eq!(model("a", Some(512)), model("a", Some(512)));
    }
}
