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

	"github.com/everynode/everynode/internal/wholefile"
)

// maxPins bounds how many images are kept, maxPinsFile what is read of their file, in bytes.
const (
	maxPins     = 500
	maxPinsFile = 1 << 20
)

// Pins are the names of images that stay on the node though no container uses them. They are in a file. It is safe for concurrent
// use.
type Pins struct {
	path string

	mu    sync.Mutex
	names []string
	// broken says why it is not known which there are.
	broken error
}

// pinsFile is what the file holds.
type pinsFile struct {
	Images []string `json:"images"`
}

// OpenPins reads the file, which need not be there. What is wrong with it is told by whatever needs to know the pins.
func OpenPins(path string) *Pins {
	p := &Pins{path: path}
	names, err := readPins(path)
	if err != nil {
		p.broken = fmt.Errorf("which images are kept on the node is not known: %w; remove %s to keep none", err, path)
	}
	p.names = names
	return p
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

// PinName is the name by which an image is kept: with the tag latest if it says nothing of a version, without the tag if it has a
// digest.
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
	return slices.Clone(p.names), p.broken
}

// Beside adds them to the images that others need. While it is not known which there are, nobody knows what may go.
func (p *Pins) Beside(used func(context.Context) (map[string]bool, error)) func(context.Context) (map[string]bool, error) {
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

// Add keeps an image, and says whether it was not kept before.
func (p *Pins) Add(name string) (added bool, err error) {
	return p.change(name, true)
}

// Remove lets an image go, and says whether it was kept.
func (p *Pins) Remove(name string) (removed bool, err error) {
	return p.change(name, false)
}

func (p *Pins) change(name string, keep bool) (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.broken != nil {
		return false, p.broken
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
		return false, fmt.Errorf("%d images are kept on the node already; let some go with \"everynode image unpin\"", maxPins)
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
