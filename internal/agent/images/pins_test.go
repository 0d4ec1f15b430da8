package images

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	testingclock "k8s.io/utils/clock/testing"
)

func TestPins(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pins.json")
	step := func(what string, got bool, err error, want bool) {
		t.Helper()
		if got != want || err != nil {
			t.Errorf("%s: %v, %v", what, got, err)
		}
	}
	p := OpenPins(path)
	for _, name := range []string{"b:1", "b:1", "a:1"} {
		keepFor(t, p, name)(true)
	}
	again := OpenPins(path)
	if names, err := again.Names(); err != nil || !slices.Equal(names, []string{"a:1", "b:1"}) {
		t.Errorf("after a start it has %q, %v", names, err)
	}
	removed, err := again.Remove("b:1")
	step("one that goes", removed, err, true)
	removed, err = again.Remove("b:1")
	step("one that went", removed, err, false)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file is %v, %v", info.Mode(), err)
	}
	for n := range maxPins - 1 {
		if _, err := again.Add(fmt.Sprint("x", n)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := again.Add("one-too-many"); err == nil || !strings.Contains(err.Error(), "everynode image unpin") {
		t.Errorf("too many: %v", err)
	}
}

// keepFor keeps an image, and returns what reports whether it could be had.
func keepFor(t *testing.T, p *Pins, name string) (ended func(got bool)) {
	t.Helper()
	end, err := p.Add(name)
	if err != nil {
		t.Fatal(err)
	}
	return func(got bool) {
		t.Helper()
		if err := end(got); err != nil {
			t.Fatal(err)
		}
	}
}

// An image that could not be had is not kept, unless somebody else got it at the same time, or it was kept before.
func TestPinsOfSeveralAtOnce(t *testing.T) {
	const name = "r.io/a:1"
	kept := func(p *Pins, what string, want bool) {
		t.Helper()
		names, err := OpenPins(p.path).Names()
		if err != nil || slices.Contains(names, name) != want {
			t.Errorf("%s: %q are kept (%v)", what, names, err)
		}
	}
	open := func() *Pins { return OpenPins(filepath.Join(t.TempDir(), "pins.json")) }

	p := open()
	first, second := keepFor(t, p, name), keepFor(t, p, name)
	second(true)
	first(false)
	kept(p, "the first goes away after the second got it", true)

	p = open()
	first, second = keepFor(t, p, name), keepFor(t, p, name)
	first(false)
	kept(p, "the second still tries", true)
	second(true)
	kept(p, "the second got it", true)
	keepFor(t, p, name)(false)
	kept(p, "a later one goes away", true)

	p = open()
	first, second = keepFor(t, p, name), keepFor(t, p, name)
	first(false)
	second(false)
	kept(p, "nobody got it", false)

	p = open()
	first = keepFor(t, p, name)
	if removed, err := p.Remove(name); err != nil || !removed {
		t.Errorf("let go while it is pulled: %v, %v", removed, err)
	}
	first(true)
	kept(p, "somebody let it go meanwhile", false)
	second = keepFor(t, p, name)
	keepFor(t, p, name)(false)
	second(true)
	kept(p, "and then kept it again", true)
	if len(p.trials) > 0 {
		t.Errorf("%d trials are remembered", len(p.trials))
	}
}

func TestPinName(t *testing.T) {
	const digest = "@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	for image, want := range map[string]string{
		"nginx": "docker.io/library/nginx:latest", "r.io/a:1": "r.io/a:1", "r.io/a" + digest: "r.io/a" + digest, "r.io/a:1" + digest: "r.io/a" + digest, "R.io//a": "", "": "",
	} {
		if got, err := PinName(image); got != want || (err != nil) != (want == "") {
			t.Errorf("%q is kept as %q (%v), want %q", image, got, err, want)
		}
	}
}

// What is kept stays whatever the disk is like; while nobody knows what is kept, everything stays.
func TestPinnedImagesStay(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pins.json")
	pins := OpenPins(path)
	s := &shelf{images: []*runtimeapi.Image{{Id: "1", RepoTags: []string{"r.io/kept:1"}, Size: 9}, {Id: "2", RepoTags: []string{"r.io/other:1"}, Size: 9}}}
	collector := func(pins *Pins) *Collector {
		return NewCollector(CollectorConfig{Service: s, High: 85, Low: 80, Clock: testingclock.NewFakeClock(time.Unix(1e9, 0)), Warn: func(string, string) {},
			Used: pins.Beside(func(context.Context) (map[string]bool, error) { return map[string]bool{}, nil })})
	}
	if _, err := pins.Add("r.io/kept:1"); err != nil {
		t.Fatal(err)
	}
	if _, err := collector(pins).RemoveUnused(t.Context()); err != nil || !slices.Equal(s.removed, []string{"2"}) {
		t.Errorf("removed %q, %v", s.removed, err)
	}
	if _, err := pins.Remove("r.io/kept:1"); err != nil {
		t.Fatal(err)
	}
	if _, err := collector(pins).RemoveUnused(t.Context()); err != nil || !slices.Contains(s.removed, "1") {
		t.Errorf("removed %q, %v", s.removed, err)
	}
	s.removed = nil
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	broken := OpenPins(path)
	if _, err := collector(broken).RemoveUnused(t.Context()); err == nil || !strings.Contains(err.Error(), "remove "+path) || len(s.removed) > 0 {
		t.Errorf("with a broken file %q were removed, %v", s.removed, err)
	}
	if _, err := broken.Add("r.io/a:1"); err == nil {
		t.Error("a broken file is replaced")
	}
	// What it says to do helps at once.
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := collector(broken).RemoveUnused(t.Context()); err != nil || !slices.Contains(s.removed, "1") {
		t.Errorf("without the broken file %q were removed, %v", s.removed, err)
	}
}

func TestPullForNobody(t *testing.T) {
	type outcome struct {
		bytes   uint64
		present bool
		fails   string
		pulls   int
	}
	for name, c := range map[string]struct {
		image  string
		always bool
		fail   error
		want   outcome
	}{
		"there":            {"r.io/there:1", false, nil, outcome{bytes: 7, present: true}},
		"there, and asked": {"r.io/there:1", true, nil, outcome{bytes: 42, pulls: 1}},
		"not there":        {"r.io/new:1", false, nil, outcome{bytes: 42, pulls: 1}},
		"refused":          {"r.io/newer:1", false, errors.New("no route"), outcome{fails: "no route", pulls: 1}},
		"no name":          {"R.io//a", false, nil, outcome{fails: "couldn't parse image name"}},
	} {
		f := newFixture() // a pull changes what is there
		f.present["r.io/there:1"], f.fail = &runtimeapi.Image{Id: "sha256:0", Size: 7}, c.fail
		bytes, present, err := f.manager.Pull(t.Context(), c.image, c.always)
		if failed := err != nil && c.want.fails != "" && strings.Contains(err.Error(), c.want.fails); bytes != c.want.bytes || present != c.want.present || failed != (c.want.fails != "") || len(f.pulls) != c.want.pulls {
			t.Errorf("%s: %d, %v, %v after %d pulls, want %+v", name, bytes, present, err, len(f.pulls), c.want)
		}
	}
}
