use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use proptest::prelude::*;
use serde_json::json;
use skein_shared::transport::{Image, PART, Part, PutPart, Then};
use uuid::Uuid;

use super::bash::Output;
use super::cut::{self, Cut};
use super::edit::{Edit, apply};
use super::*;

fn asked(tool: Tool, arguments: Value) -> Request {
    Request { tool, arguments, variables: BTreeMap::new() }
}

fn tool(tool: Tool, arguments: Value) -> Outcome {
    asked(tool, arguments).run().outcome
}

/// A folder with files, and their paths as texts.
struct Tree(tempfile::TempDir);

impl Tree {
    fn of(files: &[(&str, &str)]) -> Self {
        let tree = Self(tempfile::tempdir().unwrap());
        for (name, text) in files {
            let path = Path::new(&tree.path(name)).to_owned();
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        tree
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }
}

fn edit(old: &str, new: &str) -> Edit {
    Edit { old_text: old.to_owned(), new_text: new.to_owned() }
}

#[test]
fn edits_are_made_in_the_text_as_it_was() {
    let cases: [(&str, &[Edit], &str); 7] = [
        ("one two", &[edit("two", "2"), edit("one", "1")], "1 2"),
        // What one edit puts in is nothing that another could match.
        ("a b", &[edit("a", "b"), edit("b", "c")], "b c"),
        ("a\r\nb\r\nc\r\n", &[edit("a\nb", "x\ny\nz")], "x\r\ny\r\nz\r\nc\r\n"),
        ("a\r\nb\nc\n", &[edit("b\nc", "d")], "a\r\nd\n"),
        ("\u{feff}a\n", &[edit("a", "b")], "\u{feff}b\n"),
        ("aXbX", &[edit("aX", ""), edit("bX", "")], ""),
        ("ü→ö", &[edit("→", "\n")], "ü\nö"),
    ];
    for (before, edits, after) in cases {
        assert_eq!(apply(before, edits).unwrap(), after, "{before:?}");
    }
}

#[test]
fn edits_that_mean_nothing_or_too_much_are_refused() {
    let cases: [(&[Edit], &str); 8] = [
        (&[], "give edits"),
        (&[edit("", "x")], "oldText is empty"),
        (&[edit("nowhere", "x")], "oldText was not found"),
        (&[edit("same", "x")], "oldText is there 2 times"),
        (&[edit("one", "one")], "change nothing"),
        (&[edit("one two", "x"), edit("two same", "y")], "edits 1 and 2 overlap"),
        (&[edit("one", "x"), edit("one", "y")], "edits 1 and 2 overlap"),
        (&[edit("one", "x"), edit("nowhere", "y")], "edit 2: "),
    ];
    for (edits, said) in cases {
        let problem = apply("one two same same", edits).unwrap_err();
        assert!(problem.contains(said), "{problem}");
    }
}

proptest! {
    #[test]
    fn an_edit_changes_its_place_and_nothing_else(
        before in "[a-z\r\n ü]{0,40}", after in "[a-z\r\n ü]{0,40}", new in "[A-Z\n]{0,12}",
    ) {
        let text = format!("{before}#old#{after}");
        prop_assume!(!new.contains("#old#"));
        let made = apply(&text, &[edit("#old#", &new)]).unwrap();
        prop_assert!(made.starts_with(&before) && made.ends_with(&after));
        let middle = &made[before.len()..made.len() - after.len()];
        prop_assert_eq!(middle.replace("\r\n", "\n"), new);
    }

    #[test]
    fn what_is_shown_is_a_part_within_the_bounds(
        begin in "[a-zü\n]{0,60}", line in "[a-zü]{0,60}", count in 0_usize..2500, end in "[a-zü\n]{0,60}",
    ) {
        let text = format!("{begin}{}{end}", format!("{line}\n").repeat(count));
        for (part, begins) in [(cut::head(&text), true), (cut::tail(&text), false)] {
            prop_assert!(part.text.len() <= cut::BYTES + 1 && part.lines <= cut::LINES);
            let is_at_its_end = if begins { text.starts_with(part.text) } else { text.ends_with(part.text) };
            prop_assert!(is_at_its_end);
            prop_assert_eq!(part.cut.is_none(), part.text.len() == text.len());
        }
    }

    #[test]
    fn output_reads_the_same_however_it_comes(text in "[a-z\n]{0,400}", size in 1_usize..50) {
        let (mut whole, mut parts) = (Output::default(), Output::default());
        whole.take_in(text.as_bytes());
        text.as_bytes().chunks(size).for_each(|part| parts.take_in(part));
        prop_assert_eq!(whole.text(), parts.text());
    }
}

#[test]
fn a_line_that_is_too_long_by_itself_is_cut_at_its_end_for_output_and_not_shown_of_a_file() {
    let text = "ü".repeat(cut::BYTES);
    assert_eq!((cut::head(&text).lines, cut::head(&text).cut), (0, Some(Cut::Bytes)));
    let tail = cut::tail(&text);
    assert!(tail.text.len() <= cut::BYTES && tail.text.ends_with('ü') && tail.lines == 1);
    let tree = Tree::of(&[("long", &text)]);
    let said = tool(Tool::Read, json!({"path": tree.path("long")}));
    assert!(!said.failed && said.text.contains("head -c 51200"), "{}", said.text);
}

#[test]
fn reading_goes_on_where_it_says() {
    let all: String = (1..=4500).map(|number| format!("line {number}\n")).collect();
    let tree = Tree::of(&[("file", &all)]);
    let (mut offset, mut read) = (1, String::new());
    loop {
        let said = tool(Tool::Read, json!({"path": tree.path("file"), "offset": offset})).text;
        let Some((text, note)) = said.split_once("\n\n[") else {
            read.push_str(&said);
            break;
        };
        read.push_str(text);
        read.push('\n');
        let next = note.split_once("offset=").unwrap().1.trim_end_matches(']');
        offset = next.parse().unwrap();
    }
    assert_eq!((read, offset), (all, 4001));
    let some = tool(Tool::Read, json!({"path": tree.path("file"), "offset": 7, "limit": 2})).text;
    assert_eq!(some, "line 7\nline 8\n\n[4492 more lines in the file. Go on with offset=9]");
    let last = tool(Tool::Read, json!({"path": tree.path("file"), "offset": 4500, "limit": 9})).text;
    assert_eq!(last, "line 4500\n");
}

#[test]
fn what_cannot_be_read_is_said() {
    let tree = Tree::of(&[("two", "1\n2"), ("empty", "")]);
    let cases = [
        (json!({"path": tree.path("none")}), "there is no such file"),
        (json!({"path": tree.path("")}), "is a folder"),
        (json!({"path": "/dev/zero"}), "is no file"),
        (json!({"path": tree.path("two"), "offset": 3}), "past the end"),
        (json!({"path": tree.path("empty"), "offset": 2}), "has 0 lines"),
    ];
    for (arguments, said) in cases {
        let outcome = tool(Tool::Read, arguments);
        assert!(outcome.failed && outcome.text.contains(said), "{}", outcome.text);
    }
    assert_eq!(tool(Tool::Read, json!({"path": tree.path("empty")})), Outcome::said(""));
    let searched = tool(Tool::Grep, json!({"pattern": "x", "path": "/dev/zero"}));
    assert!(searched.failed && searched.text.contains("is no file"), "{searched:?}");
}

#[test]
fn an_image_is_known_by_its_content() {
    let tree = Tree::of(&[("notes.png", "just text")]);
    fs::write(tree.path("picture"), b"\x89PNG\r\n\x1a\nrest").unwrap();
    let shown = tool(Tool::Read, json!({"path": tree.path("picture")}));
    assert_eq!(
        shown.image.unwrap(),
        Image { mime_type: "image/png".into(), data: "iVBORw0KGgpyZXN0".into() }
    );
    assert_eq!(tool(Tool::Read, json!({"path": tree.path("notes.png")})).text, "just text");
}

#[test]
fn a_file_is_written_with_its_folders_and_keeps_its_mode_and_its_link() {
    let tree = Tree::of(&[("script", "old")]);
    let said = tool(Tool::Write, json!({"path": tree.path("a/b/c"), "content": "ü"}));
    assert!(!said.failed && said.text.starts_with("Wrote 2 bytes"), "{}", said.text);
    assert_eq!(tree.text("a/b/c"), "ü");
    fs::set_permissions(tree.path("script"), fs::Permissions::from_mode(0o751)).unwrap();
    std::os::unix::fs::symlink("script", tree.path("link")).unwrap();
    tool(Tool::Write, json!({"path": tree.path("link"), "content": "new"}));
    assert_eq!(tree.text("script"), "new");
    assert!(fs::symlink_metadata(tree.path("link")).unwrap().is_symlink());
    assert_eq!(fs::metadata(tree.path("script")).unwrap().permissions().mode() & 0o777, 0o751);
    assert!(tool(Tool::Write, json!({"path": tree.path("a"), "content": ""})).failed);
    assert_eq!(fs::read_dir(tree.path("")).unwrap().count(), 3, "something was left behind");
}

#[test]
fn an_edit_answers_with_a_diff_and_takes_the_older_form() {
    let tree = Tree::of(&[("file", "one\ntwo\nthree\n")]);
    let path = tree.path("file");
    let said = tool(Tool::Edit, json!({"path": path, "edits": [{"oldText": "two", "newText": "2"}]}));
    assert!(said.text.contains("-two\n+2\n"), "{}", said.text);
    tool(Tool::Edit, json!({"path": path, "oldText": "one", "newText": "1"}));
    assert_eq!(tree.text("file"), "1\n2\nthree\n");
    let more = json!({"path": path, "edits": [{"oldText": "1", "newText": "x", "all": true}]});
    assert!(tool(Tool::Edit, more).failed);
    assert!(tool(Tool::Edit, json!({"path": tree.path("none"), "oldText": "a", "newText": "b"})).failed);
}

#[test]
fn edits_of_one_file_at_a_time_lose_none() {
    // Long enough to be seen in the making, if it could be.
    let filler = "x".repeat(50_000);
    let text: String = (0..40).map(|number| format!("<{number}>{filler}\n")).collect();
    let tree = Tree::of(&[("file", &text)]);
    let open = std::sync::atomic::AtomicUsize::new(40);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while open.load(std::sync::atomic::Ordering::Relaxed) > 0 {
                assert_eq!(tree.text("file").len(), text.len(), "it was seen half written");
            }
        });
        for number in 0..40 {
            let (path, open) = (tree.path("file"), &open);
            scope.spawn(move || {
                let edits = json!([{"oldText": format!("<{number}>"), "newText": format!("[{number}]")}]);
                let failed = tool(Tool::Edit, json!({"path": path, "edits": edits})).failed;
                open.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
                assert!(!failed);
            });
        }
    });
    assert!(!tree.text("file").contains('<'));
}

fn repository() -> Tree {
    Tree::of(&[
        (".gitignore", "target\n*.log\n"),
        (".git/config", "needle"),
        (".hidden", "needle in the hay\n"),
        ("src/lib.rs", "one\nneedle\nthree\nfour\nfive\nNEEDLE\n"),
        ("src/deep/main.rs", "a+b needle\n"),
        ("target/out.rs", "needle"),
        ("run.log", "needle"),
        ("binary", "needle\0"),
    ])
}

#[test]
fn grep_shows_lines_with_their_places() {
    let tree = repository();
    let grep = |arguments: Value| {
        let mut all = json!({"path": tree.path("")});
        all.as_object_mut().unwrap().extend(arguments.as_object().unwrap().clone());
        tool(Tool::Grep, all).text
    };
    let plain = ".hidden:1: needle in the hay\nsrc/deep/main.rs:1: a+b needle\nsrc/lib.rs:2: needle";
    assert_eq!(grep(json!({"pattern": "needle"})), plain);
    assert_eq!(
        grep(json!({"pattern": "^n.*e$", "ignoreCase": true})),
        "src/lib.rs:2: needle\nsrc/lib.rs:6: NEEDLE"
    );
    assert_eq!(grep(json!({"pattern": "a+b", "literal": true})), "src/deep/main.rs:1: a+b needle");
    assert_eq!(grep(json!({"pattern": "needle", "glob": "main.*"})), "src/deep/main.rs:1: a+b needle");
    assert_eq!(grep(json!({"pattern": "needle", "glob": "src/*.rs"})), "src/lib.rs:2: needle");
    let around = "src/lib.rs-1- one\nsrc/lib.rs:2: needle\nsrc/lib.rs-3- three\n--\nsrc/lib.rs-5- five\nsrc/lib.rs:6: NEEDLE";
    assert_eq!(
        grep(json!({"pattern": "needle", "ignoreCase": true, "glob": "lib.rs", "context": 1})),
        around
    );
    let one = grep(json!({"pattern": "needle", "limit": 1}));
    assert!(one.starts_with(".hidden:1: ") && one.contains("only the first 1 matches"), "{one}");
    assert_eq!(grep(json!({"pattern": "absent"})), "No matches found");
    let file = tool(Tool::Grep, json!({"pattern": "four", "path": tree.path("src/lib.rs")}));
    assert_eq!(file.text, "lib.rs:4: four");
    let wrong = tool(Tool::Grep, json!({"pattern": "(", "path": tree.path("")}));
    assert!(wrong.failed && wrong.text.contains("literal"), "{}", wrong.text);
    fs::write(tree.path("wide"), "x".repeat(2 << 20) + "\nneedle\n").unwrap();
    let wide = tool(Tool::Grep, json!({"pattern": "x|needle", "path": tree.path("wide")})).text;
    assert!(
        wide.contains("wide:2: needle") && wide.contains("long lines are cut") && wide.len() < 1000,
        "{wide}"
    );
}

#[test]
fn find_takes_names_and_paths() {
    let tree = repository();
    let find = |pattern: &str| tool(Tool::Find, json!({"pattern": pattern, "path": tree.path("")})).text;
    assert_eq!(find("*.rs"), "src/deep/main.rs\nsrc/lib.rs");
    assert_eq!(find("src/*.rs"), "src/lib.rs");
    assert_eq!(find("**/*.rs"), "src/deep/main.rs\nsrc/lib.rs");
    assert_eq!(find("d*"), "src/deep/");
    assert_eq!(find("*.log"), "No files found that match the pattern");
    let few = tool(Tool::Find, json!({"pattern": "*", "path": tree.path(""), "limit": 2})).text;
    assert!(few.starts_with(".gitignore\n.hidden\n\n[only the first 2"), "{few}");
    assert!(tool(Tool::Find, json!({"pattern": "*", "path": tree.path("run.log")})).failed);
}

#[test]
fn ignore_files_above_a_work_folder_rule_nothing_out() {
    let tree = Tree::of(&[(".gitignore", "*\n"), ("work/src/lib.rs", "needle\n")]);
    let found = tool(Tool::Find, json!({"pattern": "*.rs", "path": tree.path("work")})).text;
    assert_eq!(found, "src/lib.rs");
    let found = tool(Tool::Grep, json!({"pattern": "needle", "path": tree.path("work/src")})).text;
    assert_eq!(found, "lib.rs:1: needle");
}

#[test]
fn ls_names_everything_in_order() {
    let tree = Tree::of(&[("b", ""), ("A/x", ""), (".c", "")]);
    let ls = |arguments: Value| tool(Tool::Ls, arguments);
    assert_eq!(ls(json!({"path": tree.path("")})).text, ".c\nA/\nb");
    let few = ls(json!({"path": tree.path(""), "limit": 1})).text;
    assert_eq!(few, ".c\n\n[1 of 3 entries are shown; ask for more with limit]");
    assert!(ls(json!({"path": tree.path("b")})).text.contains("is not a folder"));
    assert!(ls(json!({"path": tree.path("none")})).failed);
}

/// What each shows when nothing is said (spec: Action Llama 2.2).
#[test]
fn what_is_shown_has_its_usual_bounds() {
    let names: Vec<String> = (0..1100).map(|number| format!("f{number:04}")).collect();
    let files: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "needle\n")).collect();
    let tree = Tree::of(&files);
    let shown = |name: Tool, arguments: Value| {
        let text = tool(name, arguments).text;
        let (shown, note) =
            text.split_once("\n\n[").unwrap_or_else(|| panic!("nothing was left out: {text}"));
        (shown.lines().count(), shown.len(), note.to_owned())
    };
    let (lines, _, note) = shown(Tool::Ls, json!({"path": tree.path("")}));
    assert!(lines == 500 && note.starts_with("500 of 1100 entries"), "{lines}: {note}");
    let (lines, _, note) = shown(Tool::Find, json!({"pattern": "*", "path": tree.path("")}));
    assert!(lines == 1000 && note.starts_with("only the first 1000"), "{lines}: {note}");
    let (lines, _, note) = shown(Tool::Grep, json!({"pattern": "needle", "path": tree.path("")}));
    assert!(lines == 100 && note.starts_with("only the first 100 matches"), "{lines}: {note}");

    fs::write(tree.path("wide"), "y".repeat(600) + "\n" + &("z".repeat(500) + "\n").repeat(200)).unwrap();
    let (_, length, note) = shown(Tool::Grep, json!({"pattern": "y", "path": tree.path("wide")}));
    assert_eq!((length, note.contains("long lines are cut")), ("wide:1:  … [cut]".len() + 500, true));
    let (lines, length, note) =
        shown(Tool::Grep, json!({"pattern": "z", "path": tree.path("wide"), "limit": 200}));
    assert!(length <= cut::BYTES && length > cut::BYTES - 600, "{length}");
    assert!(note.contains(&format!("only the first {lines} lines are shown: 50 KB at most")), "{note}");
    assert_eq!(asked(Tool::Bash, json!({"command": "true"})).limit().as_secs(), 300 + MARGIN.as_secs());
}

#[test]
fn a_command_says_what_it_printed_and_how_it_ended() {
    let bash = |command: &str| tool(Tool::Bash, json!({"command": command}));
    assert_eq!(bash("echo out; echo err >&2"), Outcome::said("out\nerr"));
    assert_eq!(bash("true"), Outcome::said("(no output)"));
    assert_eq!(bash("echo no; exit 3"), Outcome::failed("no\n\nThe command ended with exit code 3"));
    assert_eq!(bash("kill -9 $$").text, "(no output)\n\nThe command was ended by signal 9");
    assert!(tool(Tool::Bash, json!({"command": "true", "timeout": 0})).text.contains("seconds above 0"));
    assert!(tool(Tool::Bash, json!({"command": "true", "timeout": 1e300})).failed);
}

#[test]
fn the_end_of_long_output_is_shown_and_all_of_it_kept() {
    let said = tool(Tool::Bash, json!({"command": "seq 1 100000"})).text;
    let (shown, note) = said.split_once("\n\n[").unwrap();
    assert!(shown.ends_with("\n100000") && shown.len() <= cut::BYTES && shown.lines().count() == 2000);
    let path = note.rsplit_once(' ').unwrap().1.trim_end_matches(']');
    let whole = fs::read_to_string(path).unwrap();
    fs::remove_file(path).unwrap();
    assert_eq!(whole.lines().count(), 100_000);
    assert!(note.starts_with("Lines 98001-100000 of 100000"), "{note}");
}

#[test]
fn a_command_whose_time_is_over_is_ended_with_its_group() {
    let command = "trap '' TERM; (sleep 1000; echo late) & echo begun; while :; do sleep 0.01; done";
    // By then it has begun, also if it waits for a processor.
    let request = asked(Tool::Bash, json!({"command": command, "timeout": 3}));
    let Ran { outcome: said, timed_out, .. } = request.run();
    assert!(
        said.failed && timed_out && said.text.starts_with("begun\n\nThe command was ended after 3"),
        "{said:?}"
    );
}

#[test]
fn what_runs_on_in_the_background_holds_nobody_up() {
    let said = tool(Tool::Bash, json!({"command": "sleep 20 & echo $!"}));
    assert!(!said.failed, "{said:?}");
    let pid: i32 = said.text.parse().unwrap();
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(pid).unwrap(),
        rustix::process::Signal::KILL,
    )
    .unwrap();
}

#[test]
fn a_command_that_begins_with_a_dash_is_a_command() {
    let outcome = tool(Tool::Bash, json!({"command": "--version"}));
    assert!(outcome.failed && outcome.text.contains("127"), "{outcome:?}");
}

fn part(path: &str, from: u64) -> Result<Part> {
    let outcome = tool(Tool::GetPart, json!({ "path": path, "from": from }));
    if outcome.failed { Err(outcome.text) } else { Ok(serde_json::from_str(&outcome.text).unwrap()) }
}

fn put(path: &str, from: usize, data: &[u8], then: Then) -> Outcome {
    let (path, from, data) = (path.to_owned(), from as u64, BASE64_STANDARD.encode(data));
    let part = PutPart { path, transfer: Uuid::from_u128(7), from, data, then };
    tool(Tool::PutPart, serde_json::to_value(part).unwrap())
}

#[test]
fn a_file_goes_out_in_parts_and_comes_in_whole_or_not_at_all() {
    let tree = Tree::of(&[("keep/a.txt", "as it was")]);
    let bytes: Vec<u8> = (0..PART * 2 + 5).map(|number| (number % 251) as u8).collect();
    let (from, to) = (tree.path("large.bin"), tree.path("new/it's.bin"));
    fs::write(&from, &bytes).unwrap();
    let mut carried = 0;
    loop {
        let found = part(&from, carried as u64).unwrap();
        assert_eq!(found.size, bytes.len() as u64);
        let data = BASE64_STANDARD.decode(found.data).unwrap();
        let then = if carried + data.len() == bytes.len() { Then::Keep } else { Then::More };
        assert!(!Path::new(&to).exists(), "it has its name once it is whole");
        // What is said twice is done once.
        for _ in 0..if then == Then::More { 2 } else { 1 } {
            assert!(!put(&to, carried, &data, then).failed);
        }
        carried += data.len();
        if then == Then::Keep {
            break;
        }
    }
    assert_eq!(fs::read(&to).unwrap(), bytes);
    assert!(put(&to, carried, b"late", Then::Keep).failed, "it has ended");
    assert_eq!(fs::read(&to).unwrap(), bytes);

    let kept = tree.path("keep/a.txt");
    assert!(!put(&kept, 0, b"half", Then::More).failed);
    assert!(!put(&kept, 0, b"", Then::Drop).failed);
    assert_eq!(tree.text("keep/a.txt"), "as it was");
    assert_eq!(fs::read_dir(tree.path("keep")).unwrap().count(), 1, "nothing is left of it");
    // What nobody could end is gone with the next file a day later, and nothing else is.
    for (name, is_old) in [("keep/.skein-left", true), ("keep/old.txt", true), ("keep/.skein-new", false)] {
        let file = fs::File::create(tree.path(name)).unwrap();
        let now = file.metadata().unwrap().modified().unwrap();
        file.set_modified(if is_old { now - Duration::from_secs(90_000) } else { now }).unwrap();
    }
    assert!(!put(&tree.path("keep/next"), 0, b"", Then::Keep).failed);
    let exists = |name: &str| Path::new(&tree.path(name)).exists();
    assert_eq!(["keep/.skein-left", "keep/old.txt", "keep/.skein-new"].map(exists), [false, true, true]);
    // As any other change of a file: a link stays, and so does the mode.
    fs::set_permissions(&kept, fs::Permissions::from_mode(0o600)).unwrap();
    std::os::unix::fs::symlink(&kept, tree.path("link")).unwrap();
    assert!(!put(&tree.path("link"), 0, b"new", Then::Keep).failed);
    assert_eq!((tree.text("keep/a.txt").as_str(), tree.text("link").as_str()), ("new", "new"));
    assert_eq!(fs::metadata(&kept).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(fs::symlink_metadata(tree.path("link")).unwrap().is_symlink());
    // A name may be as long as the file system takes.
    assert!(!put(&tree.path(&"ä".repeat(127)), 0, b"", Then::Keep).failed);
}

#[test]
fn what_is_no_file_is_carried_nowhere() {
    let tree = Tree::of(&[("keep/a.txt", "text")]);
    rustix::fs::mknodat(
        rustix::fs::CWD,
        tree.path("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    for (name, told) in [("nowhere", "no such file"), ("keep", "is no file"), ("pipe", "is no file")] {
        let problem = part(&tree.path(name), 0).unwrap_err();
        assert!(problem.contains(told), "{name}: {problem}");
    }
    let past = part(&tree.path("keep/a.txt"), 9).unwrap();
    assert_eq!((past.size, past.data.as_str()), (4, ""));
    assert_eq!(part(&tree.path("keep/a.txt"), 0).unwrap().version, past.version);
    fs::remove_file(tree.path("keep/a.txt")).unwrap();
    fs::write(tree.path("keep/b.txt"), "").unwrap();
    fs::write(tree.path("keep/a.txt"), "news").unwrap();
    assert_ne!(part(&tree.path("keep/a.txt"), 0).unwrap().version, past.version);
    for (name, told) in [("keep", "is a folder"), ("pipe", "is no file")] {
        let outcome = put(&tree.path(name), 0, b"x", Then::Keep);
        assert!(outcome.failed && outcome.text.contains(told), "{outcome:?}");
    }
    let written = tool(Tool::Write, json!({"path": tree.path("pipe"), "content": "x"}));
    assert!(written.failed && written.text.contains("is a pipe"), "{written:?}");
    assert_eq!(fs::read_dir(&tree.0).unwrap().count(), 2, "nothing is left of it");
}
