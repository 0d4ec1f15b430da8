package remember

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"

	"github.com/everynode/everynode/internal/files/wholefile"
)

// end is the last line of a file: how many objects are before it.
type end struct {
	Objects *int `json:"objects"`
}

// readLines hands each object of the file to add, which says whether it is of a kind that it knows. It says whether
// there is a file. The error says which file is broken, and why.
func readLines(path, what string, seal Seal, add func(raw []byte) (bool, error)) (there bool, err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read what the node knew of %s: %w", what, err)
	}
	defer func() { _ = f.Close() }()
	if err := decodeLines(f, seal, add); err != nil {
		return false, fmt.Errorf("read what the node knew of %s, in %s: %w", what, path, err)
	}
	return true, nil
}

func decodeLines(in io.Reader, seal Seal, add func(raw []byte) (bool, error)) error {
	lines := &sealing{Seal: seal}
	for d, count := json.NewDecoder(bufio.NewReader(in)), 0; ; count++ {
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return fmt.Errorf("object %d: %w", count, err)
		}
		opened, err := lines.open(raw, count)
		if err != nil {
			return fmt.Errorf("object %d: %w", count, err)
		}
		known, err := add(opened)
		if err != nil {
			return fmt.Errorf("object %d: %w", count, err)
		}
		if known {
			continue
		}
		var last end
		switch err := json.Unmarshal(opened, &last); {
		case err != nil || last.Objects == nil:
			return fmt.Errorf("object %d is of no known kind", count)
		case *last.Objects != count:
			return fmt.Errorf("there are %d objects, and there were %d", count, *last.Objects)
		default:
			return nil
		}
	}
}

// writeLines replaces the file by one with these objects.
func writeLines(path string, seal Seal, objects iter.Seq[any]) error {
	return wholefile.Write(path, 0o600, func(w io.Writer) error { return encodeLines(w, seal, objects) })
}

func encodeLines(out io.Writer, seal Seal, objects iter.Seq[any]) error {
	buffered, count := bufio.NewWriter(out), 0
	lines := seal.newWriting()
	write := func(object any) error {
		raw, err := json.Marshal(object)
		if err != nil {
			return err
		}
		if raw, err = lines.close(raw, count); err != nil {
			return err
		}
		if _, err = buffered.Write(raw); err != nil {
			return err
		}
		return buffered.WriteByte('\n')
	}
	for object := range objects {
		if err := write(object); err != nil {
			return err
		}
		count++
	}
	objectsBefore := count
	if err := write(end{Objects: &objectsBefore}); err != nil {
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
