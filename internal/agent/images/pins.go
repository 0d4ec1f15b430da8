package images

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"sync"

	"github.com/distribution/reference"

	"github.com/everynode/everynode/internal/agent/mend"
	"github.com/everynode/everynode/internal/files/wholefile"
)

// maxPins bounds how many images are kept, maxPinsFile what is read of their file, in bytes.
const (
	maxPins     = 500
	maxPinsFile = 1 << 20
)

// Pins are the names of images that stay on the node though no container uses them. They are in a file. It is safe for
// concurrent use.
type Pins struct {
	path string

	mu    sync.Mutex
	names []string
	// broken says why it is not known which there are.
	broken error
	// trials are those of names that are kept for now.
	trials map[string]*trial
}

// trial is a name that is kept as long as somebody tries to get the image.
type trial struct {
	underWay int
	// got says that somebody has got it: then it stays.
	got bool
}

// pinsFile is what the file holds.
type pinsFile struct {
	Images []string `json:"images"`
}

// OpenPins reads the file, which need not be there. What is wrong with it is told by whatever needs to know the pins.
func OpenPins(path string) *Pins {
	p := &Pins{path: path, trials: map[string]*trial{}}
	p.read()
	return p
}

// read reads the file. The lock is held, or nobody else has the pins yet.
func (p *Pins) read() {
	p.names, p.broken = readPins(p.path)
	if p.broken != nil {
		p.broken = fmt.Errorf("which images are kept on the node is not known: %w; remove %s to keep none", p.broken, p.path)
	}
}

// mended looks whether somebody has mended or removed a broken file. The lock is held.
func (p *Pins) mended() error {
	if p.broken != nil {
		p.read()
	}
	return p.broken
}

func readPins(path string) ([]string, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	var content pinsFile
	if err := json.NewDecoder(io.LimitReader(f, maxPinsFile)).Decode(&content); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	slices.Sort(content.Images)
	return slices.Compact(content.Images), nil
}

// PinName is the name by which an image is kept: with the tag latest if it says nothing of a version, without the tag
// if it has a digest.
func PinName(image string) (string, error) {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return "", fmt.Errorf("couldn't parse image name %q: %w", image, err)
	}
	if digested, ok := named.(reference.Digested); ok {
		return named.Name() + "@" + digested.Digest().String(), nil
	}
	return reference.TagNameOnly(named).String(), nil
}

// Names are all of them, in order.
func (p *Pins) Names() ([]string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	err := p.mended()
	return slices.Clone(p.names), err
}

// Mend implements mend.Part. A file that can be read is left to whoever wrote it.
func (p *Pins) Mend() (mended []string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	there, err := readPins(p.path)
	if p.broken != nil || len(p.names) == 0 || err == nil && len(there) > 0 {
		return nil, nil
	}
	content, err := json.Marshal(pinsFile{p.names})
	if err != nil {
		return nil, fmt.Errorf("write which images are kept: %w", err)
	}
	return mend.Files(mend.File{Path: p.path, Mode: 0o600, Content: append(content, '\n')})
}

// Beside adds them to the images that others need. While it is not known which there are, nobody knows what may go.
func (p *Pins) Beside(
	used func(context.Context) (map[string]bool, error),
) func(context.Context) (map[string]bool, error) {
	return func(ctx context.Context) (map[string]bool, error) {
		names, err := p.Names()
		if err != nil {
			return nil, err
		}
		all, err := used(ctx)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			all[name] = true
		}
		return all, nil
	}
}

// Add keeps an image from now on. Ended is to be called once, when it is known whether the image could be had: an image
// that was not kept before goes again when nobody of those who tried at the same time has got it.
func (p *Pins) Add(name string) (ended func(got bool) error, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	added, err := p.change(name, true)
	if err != nil {
		return nil, err
	}
	t := p.trials[name]
	switch {
	case added:
		t = &trial{}
		p.trials[name] = t
	case t == nil:
		return func(bool) error { return nil }, nil // it was kept before
	}
	t.underWay++
	return func(got bool) error { return p.end(name, t, got) }, nil
}

func (p *Pins) end(name string, t *trial, got bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	t.underWay--
	t.got = t.got || got
	if t.underWay > 0 || p.trials[name] != t {
		return nil // others try still, or somebody has let it go meanwhile
	}
	delete(p.trials, name)
	if t.got {
		return nil
	}
	_, err := p.change(name, false)
	return err
}

// Remove lets an image go, and says whether it was kept.
func (p *Pins) Remove(name string) (removed bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if removed, err = p.change(name, false); err == nil {
		delete(p.trials, name)
	}
	return removed, err
}

// change adds a name or takes it away. The lock is held.
func (p *Pins) change(name string, keep bool) (bool, error) {
	if err := p.mended(); err != nil {
		return false, err
	}
	at, is := slices.BinarySearch(p.names, name)
	if is == keep {
		return false, nil
	}
	next := slices.Clone(p.names)
	switch {
	case !keep:
		next = slices.Delete(next, at, at+1)
	case len(next) >= maxPins:
		return false, fmt.Errorf(
			"%d images are kept on the node already; let some go with \"everynode image unpin\"", maxPins,
		)
	default:
		next = slices.Insert(next, at, name)
	}
	err := wholefile.Write(p.path, 0o600, func(w io.Writer) error { return json.NewEncoder(w).Encode(pinsFile{next}) })
	if err != nil {
		return false, fmt.Errorf("write which images are kept: %w", err)
	}
	p.names = next
	return true, nil
}
