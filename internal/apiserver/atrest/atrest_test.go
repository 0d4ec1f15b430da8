package atrest

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/files/wholefile"
	"github.com/everynode/everynode/internal/storage/encryption"
)

// memory is a database.
type memory struct {
	mu       sync.Mutex
	values   map[string][]byte
	versions map[string]int64
	revision int64
	// before is called before each Create.
	before func()
}

func newMemory() *memory { return &memory{values: map[string][]byte{}, versions: map[string]int64{}} }

func (m *memory) put(key string, value []byte) {
	m.revision++
	m.values[key], m.versions[key] = value, m.revision
}

func (m *memory) Empty(_ context.Context, prefix string) (bool, error) {
	empty := true
	err := m.Each(context.Background(), prefix, func(string, []byte, int64) error { empty = false; return nil })
	return empty, err
}

func (m *memory) Each(_ context.Context, prefix string, f func(string, []byte, int64) error) error {
	m.mu.Lock()
	var keys []string
	for key := range m.values {
		if strings.HasPrefix(key, prefix) {
			keys = append(keys, key)
		}
	}
	m.mu.Unlock()
	slices.Sort(keys)
	for _, key := range keys {
		m.mu.Lock()
		value, version := m.values[key], m.versions[key]
		m.mu.Unlock()
		if err := f(key, value, version); err != nil {
			return err
		}
	}
	return nil
}

func (m *memory) First(_ context.Context, prefix, from string) (first string, err error) {
	err = m.Each(context.Background(), prefix, func(key string, _ []byte, _ int64) error {
		if first == "" && key >= from {
			first = key
		}
		return nil
	})
	return first, err
}

func (m *memory) Get(_ context.Context, key string) ([]byte, int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.values[key], m.versions[key], nil
}

func (m *memory) Create(_ context.Context, key string, value []byte) (bool, error) {
	if m.before != nil {
		m.before()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.values[key] != nil {
		return false, nil
	}
	m.put(key, value)
	return true, nil
}

func (m *memory) Replace(_ context.Context, key string, revision int64, value []byte) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.versions[key] != revision {
		return false, nil
	}
	m.put(key, value)
	return true, nil
}

func (m *memory) Delete(_ context.Context, key string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.values, key)
	return nil
}

func configOf(t *testing.T, m *memory) Config {
	t.Helper()
	return Config{File: filepath.Join(t.TempDir(), "encryption.yaml"), Database: m, Prefix: "/registry", Clock: clock.RealClock{}, Settle: time.Minute}
}

func open(t *testing.T, c Config) *Keeper {
	t.Helper()
	k, err := Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// store writes a Secret as a server would.
func store(t *testing.T, k *Keeper, m *memory, name, text string) {
	t.Helper()
	key := "/registry/secrets/default/" + name
	written, err := k.TransformerForResource(secrets).TransformToStorage(t.Context(), []byte(text), value.DefaultContext(key))
	if err != nil {
		t.Fatal(err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.put(key, written)
}

func writeKeys(t *testing.T, file string, keys ...encryption.Key) {
	t.Helper()
	if _, err := encryption.Write(file, keys); err != nil {
		t.Fatal(err)
	}
}

func keysIn(t *testing.T, file string) encryption.Keys {
	t.Helper()
	content, err := encryption.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := encryption.Decode(content)
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

func newKey(t *testing.T, name string) encryption.Key {
	t.Helper()
	k, err := encryption.NewKey(name)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// Of two servers that start at once on an empty database one makes the key, and the
// other is told to take it; it leaves no key of its own behind.
func TestOneOfTwoServersMakesTheKey(t *testing.T) {
	m := newMemory()
	first, second := configOf(t, m), configOf(t, m)
	m.before = func() {
		m.before = nil
		open(t, second)
	}
	if _, err := Open(t.Context(), first); err == nil || !strings.Contains(err.Error(), "copy its encryption.yaml") || strings.Contains(err.Error(), "\n") {
		t.Fatalf("the one that was later: %v", err)
	}
	if _, err := os.Stat(first.File); !os.IsNotExist(err) {
		t.Errorf("it leaves a key behind: %v", err)
	}
	if _, err := Open(t.Context(), first); err == nil || !strings.Contains(err.Error(), "copy it from another server") {
		t.Errorf("the next time: %v", err)
	}
	content, err := encryption.Read(second.File)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(first.File, content, 0o600); err != nil {
		t.Fatal(err)
	}
	store(t, open(t, first), m, "s", "text")
	open(t, second)
}

// What a process left that was killed while it wrote the file is removed.
func TestUnfinishedKeysAreRemoved(t *testing.T) {
	c := configOf(t, newMemory())
	left := filepath.Join(filepath.Dir(c.File), wholefile.Unfinished(c.File)+"123")
	if err := os.WriteFile(left, []byte("half a k"), 0o600); err != nil {
		t.Fatal(err)
	}
	open(t, c)
	if _, err := os.Stat(left); !os.IsNotExist(err) {
		t.Errorf("it is still there: %v", err)
	}
}

// Old data says in one line that it is plain, and what to do.
func TestOldDataSaysThatItIsPlain(t *testing.T) {
	m := newMemory()
	m.put("/registry/secrets/default/s", []byte("k8s\x00text"))
	c := configOf(t, m)
	var log bytes.Buffer
	ctx := klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log))))
	k, err := Open(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(log.String(), "\n") != 1 || !strings.Contains(log.String(), "everynode secrets encrypt") {
		t.Errorf("it says %q", log.String())
	}
	if _, err := os.Stat(c.File); !os.IsNotExist(err) {
		t.Errorf("it has made keys: %v", err)
	}
	if key, err := writes(t.Context(), k.TransformerForResource(secrets)); err != nil || key != encryption.Plain {
		t.Errorf("it writes with %q, %v", key, err)
	}
}

// A running server takes no file with which it could not read what is stored, says so,
// and goes on with what it had.
func TestFollowing(t *testing.T) {
	m := newMemory()
	c := configOf(t, m)
	k := open(t, c)
	store(t, k, m, "s", "text")
	keys := keysIn(t, c.File)
	before, _ := k.Hash()
	for name, change := range map[string]func(){
		"without its key":     func() { writeKeys(t, c.File, newKey(t, "key-2")) },
		"with a changed key":  func() { writeKeys(t, c.File, newKey(t, "key-2"), encryption.Key{}) },
		"another cluster's":   func() { writeKeys(t, c.File, newKey(t, "key-1")) },
		"its key is another":  func() { writeKeys(t, c.File, newKey(t, "key-2"), newKey(t, "key-1")) },
		"no key at first":     func() { writeKeys(t, c.File, encryption.Key{}, keys[0]) },
		"half a file":         func() { _ = os.WriteFile(c.File, []byte("apiVersion: apiser"), 0o600) },
		"gone":                func() { _ = os.Remove(c.File) },
		"readable for others": func() { writeKeys(t, c.File, keys...); _ = os.Chmod(c.File, 0o640) },
	} {
		change()
		err := k.follow(t.Context())
		if err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
		if now, _ := k.Hash(); now != before {
			t.Errorf("%s: it is in use", name)
		}
		store(t, k, m, "s", "text")
		_ = os.Remove(c.File)
	}
	second := newKey(t, "key-2")
	writeKeys(t, c.File, second, keys[0])
	if err := k.follow(t.Context()); err != nil {
		t.Fatal(err)
	}
	now, settled := k.Hash()
	if now == before || settled {
		t.Errorf("the new file is not in use, or counts as settled at once: %v", settled)
	}
	status, err := k.Status(t.Context())
	if err != nil || status.Resources[0].Writes != "secretbox:key-2" || status.Resources[0].Stored["secretbox:key-1"] != 2 {
		t.Errorf("status %+v, %v, want the Secret and the witness with key-1", status, err)
	}
	// Without the witness being rewritten, the next start would fail.
	done, err := k.Rewrite(t.Context())
	if err != nil || done.Rewritten != 2 || done.Left != 0 {
		t.Errorf("rewritten: %+v, %v", done, err)
	}
	writeKeys(t, c.File, second)
	if err := k.follow(t.Context()); err != nil {
		t.Error(err)
	}
	open(t, c)
	// Who still has the file of before would write what nobody can read.
	writeKeys(t, c.File, keys[0], second)
	if _, err := Open(t.Context(), c); err == nil || !strings.Contains(err.Error(), "still write with the older key-1") {
		t.Errorf("with an older file: %v", err)
	}
}

// What is written while objects are rewritten is not overwritten, and counts as left.
func TestRewritingLeavesNewerValues(t *testing.T) {
	m := newMemory()
	c := configOf(t, m)
	k := open(t, c)
	for _, name := range []string{"a", "b", "c"} {
		store(t, k, m, name, "old "+name)
	}
	writeKeys(t, c.File, newKey(t, "key-2"), keysIn(t, c.File)[0])
	if err := k.follow(t.Context()); err != nil {
		t.Fatal(err)
	}
	racing := racing{m, func() { store(t, k, m, "b", "new b") }}
	k.config.Database = &racing
	done, err := k.Rewrite(t.Context())
	if err != nil || done.Rewritten != 3 || done.Left != 1 {
		t.Errorf("rewritten: %+v, %v", done, err)
	}
	got, _, err := k.TransformerForResource(secrets).TransformFromStorage(t.Context(), m.values["/registry/secrets/default/b"], value.DefaultContext("/registry/secrets/default/b"))
	if err != nil || string(got) != "new b" {
		t.Errorf("what was written meanwhile is %q, %v", got, err)
	}
}

// racing has somebody write one of the objects just before it is replaced.
type racing struct {
	*memory
	write func()
}

func (r *racing) Replace(ctx context.Context, key string, revision int64, value []byte) (bool, error) {
	if strings.HasSuffix(key, "/b") {
		r.write()
	}
	return r.memory.Replace(ctx, key, revision, value)
}
