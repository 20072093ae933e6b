use std::time::Duration;

use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::code::{Code, Refusal};
use crate::id::{EntityKey, Kind, Name};
use crate::limits;
use crate::testbed::Bench;

const BOUNDS: Bounds = Bounds { each: 100, all: 250 };

fn bench() -> Bench<Blobs> {
    Bench::new(EntityKey::of(Kind::Blobs, &Name::parse("default").unwrap()))
}

fn id(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

fn reserve(bench: &mut Bench<Blobs>, number: u128, bytes: u64) -> Result<Reply, Refusal> {
    bench.run(Command::Reserve { blob: id(number), bytes, bounds: BOUNDS })
}

#[test]
fn each_blob_and_all_of_a_swarm_have_a_limit_and_the_refusal_says_what_to_do() {
    let mut bench = bench();
    let refusal = reserve(&mut bench, 1, 101).unwrap_err();
    assert_eq!(refusal.code, Code::TooLarge);
    assert!(refusal.message.contains("101 bytes") && refusal.message.contains("file"), "{}", refusal.message);
    reserve(&mut bench, 1, 100).unwrap();
    reserve(&mut bench, 2, 100).unwrap();
    let refusal = reserve(&mut bench, 3, 51).unwrap_err();
    assert_eq!(refusal.code, Code::NoCapacity);
    assert!(refusal.message.contains("200 of 250 bytes"), "{}", refusal.message);
    reserve(&mut bench, 3, 50).unwrap();
    bench.run(Command::Free { blob: id(2) }).unwrap();
    reserve(&mut bench, 4, 100).unwrap();
}

#[test]
fn what_is_asked_for_twice_is_counted_once() {
    let mut bench = bench();
    for _ in 0..3 {
        reserve(&mut bench, 1, 90).unwrap();
        bench.run(Command::Keep { blob: id(1), bytes: 90 }).unwrap();
    }
    assert_eq!(bench.entity.used, 90);
    bench.run(Command::Withdraw { blob: id(1) }).unwrap();
    assert_eq!(bench.entity.used, 90, "what is kept is not given back");
    reserve(&mut bench, 2, 90).unwrap();
    bench.run(Command::Withdraw { blob: id(2) }).unwrap();
    assert_eq!(bench.entity.used, 90);
    for _ in 0..2 {
        bench.run(Command::Free { blob: id(1) }).unwrap();
    }
    assert_eq!(bench.entity, Blobs::default());
}

#[test]
fn a_reservation_that_nothing_came_of_lapses_and_what_is_kept_stays() {
    let mut bench = bench();
    reserve(&mut bench, 1, 100).unwrap();
    reserve(&mut bench, 2, 100).unwrap();
    bench.run(Command::Keep { blob: id(2), bytes: 100 }).unwrap();
    bench.advance(limits::BLOB_LOOSE - Duration::from_millis(1));
    assert_eq!(bench.entity.used, 200);
    bench.advance(Duration::from_millis(1));
    assert_eq!(bench.entity.used, 100);
    bench.advance(30 * limits::BLOB_LOOSE);
    assert_eq!((bench.entity.used, bench.entity.held.len()), (100, 1));
    // Its agent has the first one all the same: whoever has it is believed.
    reserve(&mut bench, 3, 100).unwrap();
    bench.run(Command::Keep { blob: id(1), bytes: 100 }).unwrap();
    assert_eq!(bench.entity.used, 300);
    assert_eq!(reserve(&mut bench, 4, 1).unwrap_err().code, Code::NoCapacity);
}

#[test]
fn a_blob_has_as_many_chunks_as_it_needs() {
    let full = CHUNK as u64;
    assert_eq!([0, 1, full, full + 1, 32 * full].map(chunks), [0, 1, 1, 2, 32]);
}

proptest! {
    /// The bench checks the sum and the documents after each event.
    #[test]
    fn any_commands_keep_the_count(
        steps in prop::collection::vec((0u8..6, 0u128..8, 0u64..120, 0u64..5000), 1..80)
    ) {
        let mut bench = bench();
        for (what, number, bytes, seconds) in steps {
            let before = bench.entity.used;
            match what {
                0 => {
                    let known = bench.entity.held.contains_key(&id(number));
                    let taken = reserve(&mut bench, number, bytes).is_ok();
                    prop_assert_eq!(taken, known || (bytes <= BOUNDS.each && before + bytes <= BOUNDS.all));
                }
                1 => { bench.run(Command::Keep { blob: id(number), bytes }).unwrap(); }
                2 => { bench.run(Command::Free { blob: id(number) }).unwrap(); }
                3 => { bench.run(Command::Withdraw { blob: id(number) }).unwrap(); }
                4 => bench.advance(Duration::from_secs(seconds)),
                _ => bench.restart(),
            }
            prop_assert_eq!(&bench.restored(), &bench.entity);
        }
    }
}
