package backup

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"strings"
)

var errCutOff = errors.New("the backup is cut off: its end is missing; fetch it again, or use another")

// Reader reads a backup. What it returns is checked against the manifest, and is to be
// trusted when Each has returned without an error.
type Reader struct {
	// Manifest says what is in the backup.
	Manifest Manifest
	// Encrypted reports whether it was.
	Encrypted bool

	below      *bufio.Reader
	compressed *gzip.Reader
	archive    *tar.Reader
}

// Open reads the beginning of a backup. allowed says which parts it may have besides the
// database.
func Open(r io.Reader, l Lock, allowed func(name string) bool) (*Reader, error) {
	opened, encrypted, err := l.open(r)
	if err != nil {
		return nil, err
	}
	return read(opened, encrypted, allowed)
}

func read(opened io.Reader, encrypted bool, allowed func(name string) bool) (b *Reader, err error) {
	// The compression reads from it byte by byte, and so not a byte too much.
	b = &Reader{Encrypted: encrypted, below: bufio.NewReader(opened)}
	b.compressed, err = gzip.NewReader(b.below)
	if err != nil {
		return nil, explain(err)
	}
	b.compressed.Multistream(false)
	b.archive = tar.NewReader(b.compressed)
	first, err := b.archive.Next()
	if err != nil {
		return nil, explain(err)
	}
	if first.Name != manifestName || first.Typeflag != tar.TypeReg || first.Size > maxManifest {
		return nil, fmt.Errorf("%w: it does not begin with a manifest", errAltered)
	}
	content, err := io.ReadAll(io.LimitReader(b.archive, maxManifest))
	if err != nil {
		return nil, explain(err)
	}
	b.Manifest, err = decodeManifest(content, allowed)
	return b, err
}

// Reseal reads a backup that is not encrypted, checks it, and writes the same to w under
// a lock.
func Reseal(w io.Writer, l Lock, from io.Reader, allowed func(name string) bool) (m Manifest, err error) {
	opened, _, err := Lock{Plain: true}.open(from)
	if err != nil {
		return m, err
	}
	sealed, err := l.seal(w)
	if err != nil {
		return m, err
	}
	target := &target{Writer: sealed}
	b, err := read(io.TeeReader(opened, target), false, allowed)
	if err == nil {
		err = b.Each(func(File, io.Reader) error { return nil })
	}
	switch {
	case target.err != nil:
		return m, fmt.Errorf("write the backup: %w", target.err)
	case err != nil:
		return m, err
	}
	return b.Manifest, sealed.Close()
}

// target remembers that it could not be written to, which is nothing that is wrong with
// what is read.
type target struct {
	io.Writer
	err error
}

func (t *target) Write(p []byte) (int, error) {
	n, err := t.Writer.Write(p)
	t.err = err
	return n, err
}

// Each calls take for every part, in order, and checks that all are there, whole, and
// that nothing follows. take need not read all. Nobody else reads the part afterwards.
func (b *Reader) Each(take func(f File, content io.Reader) error) error {
	for _, f := range b.Manifest.Files {
		part, err := b.archive.Next()
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("%w: its part %q is missing", errAltered, f.Name)
		}
		if err != nil {
			return explain(err)
		}
		if part.Name != f.Name || part.Typeflag != tar.TypeReg || part.Size != f.Size {
			return fmt.Errorf("%w: it has another part where its manifest says %q", errAltered, f.Name)
		}
		if err := b.part(f, take); err != nil {
			return err
		}
	}
	if _, err := b.archive.Next(); err == nil {
		return fmt.Errorf("%w: it has more parts than its manifest says", errAltered)
	} else if !errors.Is(err, io.EOF) {
		return explain(err)
	}
	return b.end()
}

func (b *Reader) part(f File, take func(f File, content io.Reader) error) error {
	sum := sha256.New()
	checked := io.TeeReader(faithful{b.archive}, sum)
	if err := take(f, checked); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, checked); err != nil {
		return err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != f.SHA256 {
		return fmt.Errorf("%w: its part %q has the checksum %s and should have %s", errAltered, f.Name, got, f.SHA256)
	}
	return nil
}

// end reads what is left: the checksum of the compression, the end of the encryption.
// Whoever cut something off behind the last part would not be noticed otherwise.
func (b *Reader) end() error {
	// A tar ends with blocks of zeros, and nothing else.
	rest, err := io.Copy(io.Discard, io.LimitReader(b.compressed, maxTail+1))
	if err != nil {
		return explain(err)
	}
	if rest > maxTail {
		return fmt.Errorf("%w: something follows its end", errAltered)
	}
	more, err := io.Copy(io.Discard, io.LimitReader(b.below, 1))
	if err != nil {
		return explain(err)
	}
	if more > 0 {
		return fmt.Errorf("%w: something follows its end", errAltered)
	}
	return nil
}

// maxTail is how many bytes may be behind the end of the archive.
const maxTail = 10 << 10

// faithful says in plain words what is wrong with a file that is read.
type faithful struct{ io.Reader }

func (f faithful) Read(p []byte) (int, error) {
	n, err := f.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = explain(err)
	}
	return n, err
}

func explain(err error) error {
	var file *fs.PathError
	var network net.Error
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return errCutOff
	case errors.As(err, &file), errors.As(err, &network):
		return fmt.Errorf("read the backup: %w", err)
	case errors.Is(err, errAltered), errors.Is(err, errCutOff):
		return err
	}
	return fmt.Errorf("%w: %s", errAltered, strings.ReplaceAll(err.Error(), "\n", "; "))
}
