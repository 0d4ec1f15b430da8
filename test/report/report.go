package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

// event is a line of go test -json.
type event struct {
	Action, Package, Test, Output string
	ImportPath, FailedBuild       string
	Elapsed                       float64
}

// test is what is known of a test, or of a package as such (with no name).
type test struct {
	pkg, name string
	output    []string
	failed    bool
	ended     bool
	seconds   float64
}

type report struct {
	out, log io.Writer
	tests    map[[2]string]*test
	order    []*test
	builds   map[string]*test
	stray    []string // lines that are not of go test -json
}

func newReport(out, log io.Writer) *report {
	return &report{out: out, log: log, tests: map[[2]string]*test{}, builds: map[string]*test{}}
}

func (r *report) line(raw []byte) {
	var e event
	if raw[0] != '{' || json.Unmarshal(raw, &e) != nil || e.Action == "" {
		if !bytes.HasPrefix(raw, []byte("go: downloading ")) {
			r.stray = append(r.stray, string(raw))
		}
		fmt.Fprintf(r.log, "%s", raw)
		return
	}
	io.WriteString(r.log, e.Output) //nolint:errcheck // the log is an extra
	if e.ImportPath != "" {
		r.build(e)
		return
	}
	t := r.test(e.Package, e.Test)
	switch e.Action {
	case "output":
		t.output = append(t.output, e.Output)
	case "fail":
		t.failed = true
		fallthrough
	case "pass", "skip":
		t.ended, t.seconds = true, e.Elapsed
		if e.Test == "" {
			r.packageEnded(e, t)
		}
		if !t.failed {
			t.output = nil
		}
	}
}

func (r *report) test(pkg, name string) *test {
	key := [2]string{pkg, name}
	t, ok := r.tests[key]
	if !ok {
		t = &test{pkg: pkg, name: name}
		r.tests[key] = t
		r.order = append(r.order, t)
	}
	return t
}

// build keeps what the compiler says.
func (r *report) build(e event) {
	t, ok := r.builds[e.ImportPath]
	if !ok {
		t = &test{pkg: e.ImportPath}
		r.builds[e.ImportPath] = t
		r.order = append(r.order, t)
	}
	t.output = append(t.output, e.Output)
	if e.Action == "build-fail" {
		t.failed, t.ended = true, true
	}
}

func (r *report) packageEnded(e event, t *test) {
	switch {
	case e.Action == "fail":
		fmt.Fprintf(r.out, "FAIL  %s  %.1fs\n", e.Package, e.Elapsed)
	case slices.ContainsFunc(t.output, func(s string) bool { return strings.Contains(s, "(cached)") }):
		fmt.Fprintf(r.out, "ok    %s  (cached)\n", e.Package)
	case e.Action == "pass":
		fmt.Fprintf(r.out, "ok    %s  %.1fs\n", e.Package, e.Elapsed)
	}
	if e.Elapsed >= slowPackage {
		r.showSlow(e.Package)
	}
}

// From how many seconds on a package's tests are listed, and which of them.
const slowPackage, slowTest = 60, 5

// showSlow lists where a package's time went.
func (r *report) showSlow(pkg string) {
	var slow []*test
	for _, t := range r.order {
		inner := func(o *test) bool { return o.pkg == pkg && strings.HasPrefix(o.name, t.name+"/") }
		if t.pkg == pkg && t.name != "" && t.seconds >= slowTest && !slices.ContainsFunc(r.order, inner) {
			slow = append(slow, t)
		}
	}
	slices.SortFunc(slow, func(a, b *test) int { return cmp.Compare(b.seconds, a.seconds) })
	for _, t := range slow {
		fmt.Fprintf(r.out, "      %5.1fs %s\n", t.seconds, t.name)
	}
}

// failures is the text about everything that failed, empty if nothing did.
func (r *report) failures() string {
	var text strings.Builder
	for _, t := range r.order {
		if !t.failed && (t.ended || t.name == "" && len(t.output) == 0) {
			continue
		}
		if words := r.words(t); words != "" {
			title := t.pkg
			if t.name != "" {
				title += " " + t.name
			}
			if !t.failed {
				title += " (did not end)"
			}
			fmt.Fprintf(&text, "--- FAIL: %s\n%s", title, words)
		}
	}
	// The go command itself says what it cannot do without being asked.
	if len(r.order) == 0 || text.Len() > 0 {
		text.WriteString(strings.Join(shorten(r.stray), ""))
	}
	if len(r.order) == 0 && text.Len() == 0 {
		return "--- FAIL: no test ran\n"
	}
	return text.String()
}

// words is what a failed test itself said. A test, or package, that failed only
// because one inside it did has nothing to say.
func (r *report) words(t *test) string {
	own := shorten(slices.DeleteFunc(slices.Clone(t.output), noise))
	if len(own) == 0 && r.failedInside(t) {
		return ""
	}
	if t.name == "" && r.failedInside(t) && !slices.ContainsFunc(own, func(s string) bool {
		return strings.HasPrefix(s, "panic:")
	}) {
		return ""
	}
	if len(own) == 0 {
		return "    (it said nothing)\n"
	}
	return strings.Join(own, "")
}

func (r *report) failedInside(t *test) bool {
	return slices.ContainsFunc(r.order, func(o *test) bool {
		return o != t && o.failed && (o.pkg == t.pkg || strings.HasPrefix(o.pkg, t.pkg+" ")) &&
			(t.name == "" || strings.HasPrefix(o.name, t.name+"/"))
	})
}

// noisy matches the frame that go test prints around a test's words, the logs of
// the program under test, and the variables with which a script begins.
var noisy = regexp.MustCompile(strings.Join([]string{
	`^\s*(=== |--- (PASS|FAIL|SKIP)|(PASS|FAIL|exit status \d+)\s*$|ok\s)`, `^FAIL\t`,
	`^\s*(\w+\.go:\d+: )?[IWEF][0-9]{4} [0-9:.]+`, `^\s*logger\.go:[0-9]+: `, `^\s*\{"(level|ts|time)"`, `^\s*time="[0-9]`,
	`^\s*(testscript\.go:\d+: )?(WORK|PATH|GOTRACEBACK|HOME|TMPDIR|devnull|/|:|\$|exe)=`,
}, "|"))

func noise(line string) bool { return noisy.MatchString(line) || strings.TrimSpace(line) == "" }

// How much of a test's words is shown: the end says most.
const head, tail = 15, 35

func shorten(lines []string) []string {
	if len(lines) <= head+tail+1 {
		return lines
	}
	short := append(slices.Clone(lines[:head]), fmt.Sprintf("    ... %d lines left out ...\n", len(lines)-head-tail))
	return append(short, lines[len(lines)-tail:]...)
}
