package remember

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/everynode/everynode/internal/wholefile"
)

// Known is what a node knows of Services.
type Known struct {
	// Node is the node itself; nil if that is not known.
	Node           *corev1.Node
	Services       []*corev1.Service
	EndpointSlices []*discoveryv1.EndpointSlice
	Namespaces     []*corev1.Namespace
}

// line is a line of the file: one of the objects, or the number of those before it.
type line struct {
	Node          *corev1.Node               `json:"node,omitempty"`
	Service       *corev1.Service            `json:"service,omitempty"`
	EndpointSlice *discoveryv1.EndpointSlice `json:"endpointSlice,omitempty"`
	Namespace     *corev1.Namespace          `json:"namespace,omitempty"`
	Objects       *int                       `json:"objects,omitempty"`
}

// Read reads the file; nil if there is none. The error says which file is broken, and
// why.
func Read(path string) (*Known, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read what the node knew: %w", err)
	}
	defer f.Close()
	known, err := decode(f)
	if err != nil {
		return nil, fmt.Errorf("read what the node knew, in %s: %w", path, err)
	}
	return known, nil
}

func decode(in io.Reader) (*Known, error) {
	known, count := &Known{}, 0
	for d := json.NewDecoder(bufio.NewReader(in)); ; count++ {
		var l line
		if err := d.Decode(&l); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, fmt.Errorf("object %d: %w", count, err)
		}
		switch {
		case l.Node != nil:
			known.Node = l.Node
		case l.Service != nil:
			known.Services = append(known.Services, l.Service)
		case l.EndpointSlice != nil:
			known.EndpointSlices = append(known.EndpointSlices, l.EndpointSlice)
		case l.Namespace != nil:
			known.Namespaces = append(known.Namespaces, l.Namespace)
		case l.Objects == nil:
			return nil, fmt.Errorf("object %d is of no known kind", count)
		case *l.Objects != count:
			return nil, fmt.Errorf("there are %d objects, and there were %d", count, *l.Objects)
		default:
			return known, nil
		}
	}
}

func encode(known *Known, out io.Writer) error {
	buffered := bufio.NewWriter(out)
	e := json.NewEncoder(buffered)
	count := 0
	write := func(l line) error {
		count++
		return e.Encode(l)
	}
	if known.Node != nil {
		if err := write(line{Node: known.Node}); err != nil {
			return err
		}
	}
	for _, svc := range known.Services {
		if err := write(line{Service: svc}); err != nil {
			return err
		}
	}
	for _, slice := range known.EndpointSlices {
		if err := write(line{EndpointSlice: slice}); err != nil {
			return err
		}
	}
	for _, namespace := range known.Namespaces {
		if err := write(line{Namespace: namespace}); err != nil {
			return err
		}
	}
	if err := e.Encode(line{Objects: &count}); err != nil {
		return err
	}
	return buffered.Flush()
}

// clearUnfinished removes what a process left that was killed while it wrote.
func clearUnfinished(path string) error {
	dir := filepath.Dir(path)
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("clear what was left half written: %w", err)
	}
	var failed []error
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), wholefile.Unfinished(path)) && e.Type().IsRegular() {
			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
				failed = append(failed, fmt.Errorf("clear what was left half written: %w", err))
			}
		}
	}
	return errors.Join(failed...)
}

// replace puts known where the file is, or leaves what is there.
func replace(path string, known *Known) error {
	return wholefile.Write(path, 0o600, func(w io.Writer) error { return encode(known, w) })
}
