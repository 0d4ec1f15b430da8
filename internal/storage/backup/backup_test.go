package backup

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

func allowed(name string) bool { return name == "pki/ca.key" || name == "encryption.yaml" }

func sample() (Manifest, map[string][]byte) {
	parts := map[string][]byte{Database: bytes.Repeat([]byte("database "), 3000), "pki/ca.key": []byte("a key"), "encryption.yaml": {}}
	m := Manifest{Format: Format, Data: 1, Created: time.Unix(1e9, 0).UTC(), Everynode: "v0.1.0", Cluster: "abc", Revision: 7}
	for _, name := range []string{Database, "encryption.yaml", "pki/ca.key"} {
		m.Files = append(m.Files, Part(name, parts[name]))
	}
	return m, parts
}

func written(t testing.TB, l Lock) []byte {
	t.Helper()
	m, parts := sample()
	var out bytes.Buffer
	if err := Write(&out, l, m, func(name string) (io.Reader, error) { return bytes.NewReader(parts[name]), nil }); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// whole reads all of a backup.
func whole(content []byte, l Lock) (m Manifest, parts map[string][]byte, err error) {
	b, err := Open(bytes.NewReader(content), l, allowed)
	if err != nil {
		return m, nil, err
	}
	parts = map[string][]byte{}
	err = b.Each(func(f File, r io.Reader) error {
		content, err := io.ReadAll(r)
		parts[f.Name] = content
		return err
	})
	return b.Manifest, parts, err
}

func keyLock(t testing.TB) Lock {
	t.Helper()
	secret, _, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	l, err := Keys([]byte("# a comment\n" + secret + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	words, err := Passphrase("correct horse\n")
	if err != nil {
		t.Fatal(err)
	}
	again, err := Passphrase("correct horse")
	if err != nil {
		t.Fatal(err)
	}
	key := keyLock(t)
	for name, locks := range map[string][2]Lock{"plain": {{Plain: true}, {Plain: true}}, "passphrase": {words, again}, "key": {key, key}} {
		m, parts, err := whole(written(t, locks[0]), locks[1])
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		wanted, wantedParts := sample()
		if m.Revision != wanted.Revision || len(m.Files) != 3 {
			t.Errorf("%s: the manifest is %+v", name, m)
		}
		for part, content := range wantedParts {
			if !bytes.Equal(parts[part], content) {
				t.Errorf("%s: %s is %q", name, part, parts[part])
			}
		}
		if content := written(t, locks[0]); name != "plain" && bytes.Contains(content, []byte("a key")) {
			t.Errorf("%s: a key can be read", name)
		}
	}
}

// A backup that is cut off anywhere is not restored, and the message says so.
func TestCutOffAnywhere(t *testing.T) {
	key := keyLock(t)
	for name, l := range map[string]Lock{"plain": {Plain: true}, "key": key} {
		content := written(t, l)
		for n := range content {
			if _, _, err := whole(content[:n], l); err == nil {
				t.Fatalf("%s: it is taken with %d of %d bytes", name, n, len(content))
			} else if n > 0 && !errors.Is(err, errCutOff) && !errors.Is(err, errAltered) && !errors.Is(err, errNoBackup) {
				t.Fatalf("%s: with %d of %d bytes: %v", name, n, len(content), err)
			} else if strings.Contains(err.Error(), "\n") {
				t.Fatalf("%s: the message has several lines: %q", name, err)
			}
		}
	}
}

// No byte of a backup can be changed, added or left out unnoticed.
func TestAlteredAnywhere(t *testing.T) {
	key := keyLock(t)
	for name, l := range map[string]Lock{"plain": {Plain: true}, "key": key} {
		content := written(t, l)
		_, wanted := sample()
		for n := range content {
			changed := bytes.Clone(content)
			changed[n] ^= 1
			m, parts, err := whole(changed, l)
			// The clocks and flags in headers that nothing depends on may differ.
			if err == nil && (!bytes.Equal(parts[Database], wanted[Database]) || string(parts["pki/ca.key"]) != "a key" || m.Revision != 7) {
				t.Fatalf("%s: a change of byte %d is not noticed", name, n)
			}
			if err == nil && name == "key" {
				t.Fatalf("a change of byte %d of an encrypted backup is not noticed", n)
			}
		}
		for _, tail := range []string{"x", "\x00", strings.Repeat("\x00", 1<<20), string(content)} {
			if _, _, err := whole(append(bytes.Clone(content), tail...), l); err == nil {
				t.Errorf("%s: %d bytes behind the end are not noticed", name, len(tail))
			}
		}
	}
}

func TestRefusals(t *testing.T) {
	key, other := keyLock(t), keyLock(t)
	words, err := Passphrase("a")
	if err != nil {
		t.Fatal(err)
	}
	_, public, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	locksOnly, err := Keys([]byte(public))
	if err != nil {
		t.Fatal(err)
	}
	plain, sealed := written(t, Lock{Plain: true}), written(t, key)
	for name, c := range map[string]struct {
		content []byte
		lock    Lock
		want    string
	}{
		"another key":          {sealed, other, "not the one with which"},
		"a passphrase":         {sealed, words, "not the one with which"},
		"nothing to open with": {sealed, Lock{}, "--passphrase-file or --key-file"},
		"only unencrypted":     {sealed, Lock{Plain: true}, "--passphrase-file or --key-file"},
		"the public half":      {sealed, locksOnly, "public keys only"},
		"plain with a key":     {plain, key, "not encrypted"},
		"plain, not said":      {plain, Lock{}, "not encrypted"},
		"empty":                {nil, key, "empty"},
		"something else":       {[]byte("#!/bin/sh\n"), key, "no backup"},
		"newer":                {[]byte("everynode-backup 2 age\nwhatever"), key, "use that version, or a newer one"},
		"no format":            {[]byte("everynode-backup 01 age\nwhatever"), key, "names no format"},
		"another seal":         {[]byte("everynode-backup 1 rot13\nwhatever"), key, "how it is encrypted"},
		"plain called age":     {bytes.Replace(plain, []byte(" plain\n"), []byte(" age\n"), 1), key, "damaged"},
		"age called plain":     {bytes.Replace(sealed, []byte(" age\n"), []byte(" plain\n"), 1), Lock{Plain: true}, "damaged"},
		"a long line":          {bytes.Repeat([]byte("x"), 1<<20), key, "no backup"},
	} {
		if _, _, err := whole(c.content, c.lock); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if err := Write(io.Discard, Lock{}, Manifest{}, nil); err == nil {
		t.Error("a backup is written unencrypted without being told")
	}
}

// crafted is a backup that somebody else made.
func crafted(t *testing.T, manifest any, parts ...*tar.Header) []byte {
	t.Helper()
	var out bytes.Buffer
	out.WriteString(header{format: Format, seal: sealedNot}.String())
	compressed := gzip.NewWriter(&out)
	archive := tar.NewWriter(compressed)
	content, err := json.Marshal(manifest)
	if err != nil {
		t.Fatal(err)
	}
	if err := archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: manifestName, Size: int64(len(content))}); err != nil {
		t.Fatal(err)
	}
	if _, err := archive.Write(content); err != nil {
		t.Fatal(err)
	}
	for _, p := range parts {
		if err := archive.WriteHeader(p); err != nil {
			t.Fatal(err)
		}
		if _, err := io.CopyN(archive, zeros{}, p.Size); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(archive.Close(), compressed.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestHostileBackups(t *testing.T) {
	sum := strings.Repeat("0", 64)
	database := File{Name: Database, Size: 512, SHA256: sum}
	with := func(files ...File) Manifest { return Manifest{Format: 1, Revision: 1, Files: files} }
	part := func(name string, kind byte, size int64) *tar.Header {
		return &tar.Header{Typeflag: kind, Name: name, Size: size, Linkname: "/etc/passwd"}
	}
	for name, content := range map[string][]byte{
		"a path":            crafted(t, with(database, File{Name: "../../etc/cron.d/x", SHA256: sum})),
		"an absolute path":  crafted(t, with(database, File{Name: "/etc/passwd", SHA256: sum})),
		"a key not ours":    crafted(t, with(database, File{Name: "pki/../x", SHA256: sum})),
		"twice":             crafted(t, with(database, database)),
		"no database":       crafted(t, with(File{Name: "pki/ca.key", SHA256: sum})),
		"negative":          crafted(t, with(File{Name: Database, Size: -1, SHA256: sum})),
		"a large key":       crafted(t, with(database, File{Name: "pki/ca.key", Size: 1 << 40, SHA256: sum})),
		"a large database":  crafted(t, with(File{Name: Database, Size: 1 << 60, SHA256: sum})),
		"no checksum":       crafted(t, with(File{Name: Database, Size: 512})),
		"many parts":        crafted(t, with(make([]File, 1000)...)),
		"a newer format":    crafted(t, Manifest{Format: 2, Everynode: "v9\x1b[2J"}),
		"no manifest":       crafted(t, "hello"),
		"a link":            crafted(t, with(database), part(Database, tar.TypeSymlink, 0)),
		"another part":      crafted(t, with(database), part("pki/ca.key", tar.TypeReg, 512)),
		"another size":      crafted(t, with(database), part(Database, tar.TypeReg, 1024)),
		"another content":   crafted(t, with(database), part(Database, tar.TypeReg, 512)),
		"missing":           crafted(t, with(database)),
		"a large manifest":  crafted(t, strings.Repeat("x", 2<<20)),
		"zeros that unpack": append([]byte("everynode-backup 1 plain\n"), bomb(t)...),
	} {
		_, _, err := whole(content, Lock{Plain: true})
		if err == nil || strings.ContainsAny(err.Error(), "\n\x1b") {
			t.Errorf("%s: %v", name, err)
			continue
		}
		// It is refused for what it is, and not for what is found when it is on the disk.
		if want := map[string]string{
			"a path": "which no backup has", "an absolute path": "which no backup has", "a key not ours": "which no backup has",
			"a link": "has another part", "another part": "has another part", "another size": "has another part", "twice": "twice",
			"a large key": "has 1099511627776 bytes", "a large database": "has 1152921504606846976 bytes", "negative": "has -1 bytes",
			"many parts": "names 1000 parts", "no checksum": "has no checksum", "a large manifest": "does not begin with a manifest", "no database": "no database",
		}[name]; !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
}

// bomb is half a gigabyte of zeros, in little room.
func bomb(t *testing.T) []byte {
	t.Helper()
	var out bytes.Buffer
	compressed := gzip.NewWriter(&out)
	if _, err := io.CopyN(compressed, zeros{}, 512<<20); err != nil {
		t.Fatal(err)
	}
	if err := compressed.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// A passphrase's check may not cost more than one of ours.
func TestCostlyPassphrase(t *testing.T) {
	l, err := Passphrase("x")
	if err != nil {
		t.Fatal(err)
	}
	content := "everynode-backup 1 age\nage-encryption.org/v1\n-> scrypt aGVsbG9oZWxsb2hlbGxvaA 30\nAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n--- AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n0123456789012345"
	if _, _, err := whole([]byte(content), l); err == nil {
		t.Error("it is taken")
	}
}

func TestResealKeepsAll(t *testing.T) {
	key := keyLock(t)
	var out bytes.Buffer
	m, err := Reseal(&out, key, bytes.NewReader(written(t, Lock{Plain: true})), allowed)
	if err != nil || m.Revision != 7 {
		t.Fatalf("%+v, %v", m, err)
	}
	_, parts, err := whole(out.Bytes(), key)
	if err != nil || string(parts["pki/ca.key"]) != "a key" {
		t.Errorf("%q, %v", parts, err)
	}
	content := written(t, Lock{Plain: true})
	if _, err := Reseal(io.Discard, key, bytes.NewReader(content[:len(content)-1]), allowed); !errors.Is(err, errCutOff) {
		t.Errorf("half an answer: %v", err)
	}
}

// FuzzOpen has nothing crash or hang that is read from somebody else.
func FuzzOpen(f *testing.F) {
	f.Add(written(f, Lock{Plain: true}))
	f.Add([]byte("everynode-backup 1 age\nage-encryption.org/v1\n-> X25519 a\n"))
	f.Add([]byte("everynode-backup 2 plain\n"))
	f.Add([]byte("everynode-backup"))
	key := keyLock(f)
	f.Fuzz(func(t *testing.T, content []byte) {
		for _, l := range []Lock{key, {Plain: true}} {
			if _, _, err := whole(content, l); err != nil && strings.Contains(err.Error(), "\n") {
				t.Errorf("the message has several lines: %q", err)
			}
		}
	})
}

// FuzzManifest has a manifest name nothing that could do harm.
func FuzzManifest(f *testing.F) {
	m, _ := sample()
	content, err := json.Marshal(m)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(content)
	f.Add([]byte(`{"Format":1,"Revision":1,"Files":[{"Name":"../x","Size":1}]}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		m, err := decodeManifest(content, allowed)
		if err != nil {
			return
		}
		var sum int64
		for _, f := range m.Files {
			if f.Name != Database && !allowed(f.Name) || f.Size < 0 {
				t.Errorf("%+v is taken", f)
			}
			sum += f.Size
		}
		if sum > maxDatabase+maxFiles*maxFile {
			t.Errorf("%d bytes are taken", sum)
		}
	})
}
