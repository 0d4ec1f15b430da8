package remember

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"
)

// token is so long that what is encrypted does not have it by chance.
const token = "eyJhbGciOiJSUzI1NiJ9"

func somePods() *Pods {
	pod := &corev1.Pod{ObjectMeta: named("default", "p")}
	pod.UID = "u"
	at := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	return &Pods{
		Pods:       []Pod{{Pod: pod, Ended: &corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted"}}},
		ConfigMaps: []*corev1.ConfigMap{{ObjectMeta: named("default", "c"), Data: map[string]string{"k": "v"}}},
		Secrets:    []*corev1.Secret{{ObjectMeta: named("default", "s"), Data: map[string][]byte{"k": []byte("swordfish")}}},
		Tokens:     []Token{{Pod: "u", Seconds: 3600, Text: token, Issued: at, Ends: at.Add(time.Hour)}},
		Handlers:   map[string]string{"vm": "kata"},
	}
}

func keyFile(t *testing.T, content string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func newSeal(t *testing.T, letter string) Seal {
	t.Helper()
	seal, err := NewSeal(keyFile(t, strings.Repeat(letter, 32), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	return seal
}

func TestPodsFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	one, other := newSeal(t, "1"), newSeal(t, "2")
	for name, c := range map[string]struct {
		write, read Seal
		plain       bool
		wrong       string
	}{
		"plain":                      {plain: true},
		"sealed":                     {write: one, read: one},
		"plain, and sealed from now": {read: one, plain: true, wrong: "it is not encrypted"},
		"without the key":            {write: one, wrong: "it is encrypted"},
		"with another key":           {write: one, read: other, wrong: "it cannot be decrypted"},
	} {
		if err := writeLines(path, c.write, somePods().lines()); err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(string(content), token); got != c.plain {
			t.Errorf("%s: a thief reads the token: %v, want %v", name, got, c.plain)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: the file is %v, %v", name, info.Mode(), err)
		}
		got, err := ReadPods(path, c.read)
		switch {
		case c.wrong != "":
			if err == nil || !strings.Contains(err.Error(), c.wrong) || !strings.Contains(err.Error(), path) {
				t.Errorf("%s: read %v, %v, want an error with %q", name, got, err, c.wrong)
			}
		case err != nil || !reflect.DeepEqual(got, somePods()):
			t.Errorf("%s: read %+v, %v, want what was written", name, got, err)
		}
	}
}

// TestSealedLinesCannotChangePlaces, nor be left out.
func TestSealedLinesCannotChangePlaces(t *testing.T) {
	path, seal := filepath.Join(t.TempDir(), "file"), newSeal(t, "1")
	if err := writeLines(path, seal, somePods().lines()); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(strings.TrimSpace(string(content))+"\n", "\n")
	if err := writeLines(path, seal, somePods().lines()); err != nil {
		t.Fatal(err)
	}
	later, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	laterLines := strings.SplitAfter(string(later), "\n")
	swapped := append([]string{lines[1], lines[0]}, lines[2:]...)
	for what, changed := range map[string][]string{"swapped": swapped, "without one": lines[1:], "without the end": lines[:len(lines)-2],
		"cut off, with an end of somebody": {lines[0], `{"objects":1}` + "\n"}, "with a line of somebody": append([]string{lines[0], `{"handlers":{"vm":"runc"}}` + "\n"}, lines[2:]...),
		"with a line of another time": append([]string{lines[0], laterLines[1]}, lines[2:]...),
	} {
		if err := os.WriteFile(path, []byte(strings.Join(changed, "")), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := ReadPods(path, seal); err == nil {
			t.Errorf("%s: read %+v, want an error", what, got)
		}
	}
}

// TestPlainFileDoesNotCountWithAKey, and its Secrets do not stay on the disk.
func TestPlainFileDoesNotCountWithAKey(t *testing.T) {
	path, seal := filepath.Join(t.TempDir(), "file"), newSeal(t, "1")
	if err := writeLines(path, Seal{}, somePods().lines()); err != nil {
		t.Fatal(err)
	}
	keeper, known, err := NewPodKeeper(path, seal, somePods, testclock.NewFakeClock(time.Now()))
	if known != nil || !errors.Is(err, errNotSealed) {
		t.Fatalf("it knows %v, %v", known, err)
	}
	if err := keeper.file.save(); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadPods(path, seal); err != nil || !reflect.DeepEqual(got, somePods()) {
		t.Errorf("read %+v, %v", got, err)
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
		t.Errorf("besides the file there is %v, %v", left, err)
	}
}

func TestKeysThatCannotBeUsed(t *testing.T) {
	for want, path := range map[string]string{
		"no such file":            filepath.Join(t.TempDir(), "none"),
		"can be read by others":   keyFile(t, strings.Repeat("1", 32), 0o644),
		"has 31 bytes, and needs": keyFile(t, strings.Repeat("1", 31), 0o600),
	} {
		if _, err := NewSeal(path); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}

// TestPodKeeper: what matters is written soon, a newer token within an hour, and what is not written yet at the end.
func TestPodKeeper(t *testing.T) {
	path, clock := filepath.Join(t.TempDir(), "file"), testclock.NewFakeClock(time.Now())
	now := make(chan *Pods, 1)
	state := func(uid string) *Pods {
		p := somePods()
		p.Pods[0].Pod.UID = types.UID(uid)
		return p
	}
	now <- state("first")
	keeper, known, err := NewPodKeeper(path, Seal{}, func() *Pods {
		p := <-now
		now <- p
		return p
	}, clock)
	if known != nil || err != nil {
		t.Fatalf("it knows %v, %v", known, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- keeper.Run(ctx) }()
	written := func() types.UID {
		got, err := ReadPods(path, Seal{})
		if err != nil || got == nil {
			return ""
		}
		return got.Pods[0].Pod.UID
	}
	set := func(uid string) {
		<-now
		now <- state(uid)
	}
	step := func(d time.Duration) func() bool {
		return func() bool {
			pass(clock, d)
			return true
		}
	}
	keeper.Note()
	eventually(t, func() bool { return step(gather)() && written() == "first" }, "it is not written")

	set("second")
	keeper.NoteToken(false)
	waiting(t, clock)
	clock.Step(trifleWait - time.Minute)
	if got := written(); got != "first" {
		t.Errorf("for a newer token it wrote at once")
	}
	eventually(t, func() bool { return step(time.Minute)() && written() == "second" }, "the newer token is not written within an hour")

	set("third")
	keeper.NoteToken(true)
	eventually(t, func() bool { return step(gather)() && written() == "third" }, "a first token is not written")

	set("fourth")
	keeper.NoteToken(false)
	cancel()
	if err := <-ended; err != nil || written() != "fourth" {
		t.Errorf("at the end there is %q, %v", written(), err)
	}
}

// A file that somebody removes or cuts is written again, without any news.
func TestAFileThatIsRemovedIsWrittenAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pods")
	k, _, err := NewPodKeeper(path, Seal{}, func() *Pods { return &Pods{} }, testclock.NewFakeClock(time.Now()))
	if err != nil {
		t.Fatal(err)
	}
	for name, harm := range map[string]func() error{
		"removed": func() error { return os.Remove(path) },
		"cut":     func() error { return os.Truncate(path, 3) },
	} {
		err := k.file.save()
		if err != nil {
			t.Fatal(err)
		}
		if mended, err := k.Mend(); err != nil || len(mended)+len(k.file.news) > 0 {
			t.Errorf("of a file that is as it was it says %v, %v", mended, err)
		}
		err = harm()
		if err != nil {
			t.Fatal(err)
		}
		mended, err := k.Mend()
		if err != nil || len(mended) != 1 || len(k.file.news) != 1 {
			t.Fatalf("%s: it says %v, %v, and has %d news", name, mended, err, len(k.file.news))
		}
		<-k.file.news
		err = k.file.save()
		if err != nil {
			t.Fatal(err)
		}
		if known, err := ReadPods(path, Seal{}); err != nil || known == nil {
			t.Errorf("%s: the file holds %v, %v", name, known, err)
		}
	}
	if cut, err := os.ReadFile(path + brokenSuffix); err != nil || len(cut) != 3 {
		t.Errorf("what was cut is %q, %v", cut, err)
	}
}
