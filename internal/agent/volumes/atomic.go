package volumes

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// currentLink names the link to the directory that holds the current files.
	currentLink = "..data"
	// nextLink is what currentLink is renamed from.
	nextLink = "..data_tmp"
	// generationName begins the name of a directory that holds the files of one moment, as a layout of time.
	generationName = "..2006_01_02_15_04_05."
)

// writeFiles makes dir show exactly content. Readers see all old files or all new ones:
//
//	dir/..2026_08_01_12_00_00.123/conf.d/a   the file
//	dir/..data -> ..2026_08_01_12_00_00.123  renamed into place, which is the one moment of change
//	dir/conf.d -> ..data/conf.d              what users open
//
// It can be stopped anywhere and called again. Directories at points, on which others may be mounted, stay. group, when
// not nil, owns and may read everything.
func writeFiles(dir string, content files, points []string, group *int64, now time.Time) error {
	for path := range content {
		if err := checkItemPath(path); err != nil {
			return err
		}
	}
	old, err := currentFiles(dir)
	if err != nil {
		return err
	}
	if old == "" || !sameFiles(filepath.Join(dir, old), content, group) {
		if old, err = writeGeneration(dir, content, group, now); err != nil {
			return err
		}
	}
	return linkFiles(dir, old, content, points)
}

// currentFiles names the directory that holds the files that dir shows; "" for none.
func currentFiles(dir string) (string, error) {
	current, err := os.Readlink(filepath.Join(dir, currentLink))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("read link to current files: %w", err)
	}
	if current != "" && checkName(current) != nil {
		return "", fmt.Errorf("link to current files leads to %q", current)
	}
	return current, nil
}

// readFiles reads what dir shows, as writeFiles wrote it; none where nothing, or not all, is there.
func readFiles(dir string) (files, error) {
	current, err := currentFiles(dir)
	if err != nil || current == "" {
		return nil, err
	}
	shown, place := files{}, filepath.Join(dir, current)
	err = filepath.WalkDir(place, func(path string, entry os.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		name, err := filepath.Rel(place, path)
		if err != nil {
			return err
		}
		shown[name], err = readFile(path)
		return err
	})
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read current files: %w", err)
	}
	return shown, nil
}

func readFile(path string) (file, error) {
	var stat unix.Stat_t
	if err := unix.Lstat(path, &stat); err != nil {
		return file{}, err
	}
	data, err := os.ReadFile(path)
	uid := int64(stat.Uid)
	return file{data: data, mode: os.FileMode(stat.Mode) & os.ModePerm, uid: &uid}, err
}

// checkItemPath refuses paths that are not below the volume or would clash with the names used here.
func checkItemPath(path string) error {
	switch parts := strings.Split(path, "/"); {
	case path == "":
		return errors.New("invalid path: must not be empty")
	case filepath.IsAbs(path):
		return fmt.Errorf("invalid path: must be relative path: %s", path)
	case len(path) > 4096:
		return errors.New("invalid path: must be less than or equal to 4096 characters")
	case slices.Contains(parts, ".."):
		return fmt.Errorf("invalid path: must not contain '..': %s", path)
	case strings.HasPrefix(path, ".."):
		return fmt.Errorf("invalid path: must not start with '..': %s", path)
	case slices.ContainsFunc(parts, func(part string) bool { return len(part) > 255 }):
		return errors.New("invalid path: filenames must be less than or equal to 255 characters")
	case filepath.Clean(path) != path || strings.ContainsRune(path, 0):
		return fmt.Errorf("invalid path: %q is not a plain path", path)
	}
	return nil
}

// writeGeneration writes content to a new directory and makes it the current one.
func writeGeneration(dir string, content files, group *int64, now time.Time) (string, error) {
	place, err := os.MkdirTemp(dir, now.UTC().Format(generationName))
	if err != nil {
		return "", fmt.Errorf("make directory for files: %w", err)
	}
	if err := fillGeneration(place, content, group); err != nil {
		return "", errors.Join(err, os.RemoveAll(place))
	}
	next := filepath.Join(dir, nextLink)
	if err := os.Remove(next); err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("remove stale link: %w", err)
	}
	if err := os.Symlink(filepath.Base(place), next); err != nil {
		return "", fmt.Errorf("link files: %w", err)
	}
	if err := os.Rename(next, filepath.Join(dir, currentLink)); err != nil {
		return "", fmt.Errorf("switch to new files: %w", err)
	}
	return filepath.Base(place), nil
}

func fillGeneration(place string, content files, group *int64) error {
	if err := ownDir(place, group); err != nil {
		return err
	}
	for _, path := range sortedPaths(content) {
		parent := place
		for _, part := range strings.Split(filepath.Dir(path), "/") {
			if part == "." {
				continue
			}
			parent = filepath.Join(parent, part)
			if err := os.Mkdir(parent, 0o755); errors.Is(err, os.ErrExist) {
				continue
			} else if err != nil {
				return fmt.Errorf("make directory for %s: %w", path, err)
			}
			if err := ownDir(parent, group); err != nil {
				return err
			}
		}
		if err := writeFile(filepath.Join(place, path), content[path], group); err != nil {
			return err
		}
	}
	return nil
}

// ownDir gives a directory the mode, and the group, that volume directories have.
func ownDir(path string, group *int64) error {
	mode := uint32(0o755)
	if group != nil {
		if err := os.Chown(path, -1, int(*group)); err != nil {
			return fmt.Errorf("give directory to its group: %w", err)
		}
		mode |= unix.S_ISGID
	}
	if err := unix.Chmod(path, mode); err != nil {
		return fmt.Errorf("open directory to its users: %w", err)
	}
	return nil
}

func writeFile(path string, f file, group *int64) error {
	if err := os.WriteFile(path, f.data, 0o600); err != nil {
		return fmt.Errorf("write file: %w", err)
	}
	uid, gid := owner(f, group)
	if err := os.Chown(path, uid, gid); err != nil {
		return fmt.Errorf("give file to its owner: %w", err)
	}
	if err := os.Chmod(path, fileMode(f, group)); err != nil {
		return fmt.Errorf("set mode of file: %w", err)
	}
	return nil
}

// owner is who owns a file; root where nobody else is named.
func owner(f file, group *int64) (uid, gid int) {
	if f.uid != nil {
		uid = int(*f.uid)
	}
	if group != nil {
		gid = int(*group)
	}
	return uid, gid
}

// fileMode lets the group of the pod's volumes read every file.
func fileMode(f file, group *int64) os.FileMode {
	if group != nil {
		return f.mode | 0o440
	}
	return f.mode
}

// sameFiles reports whether place holds exactly content with the right owners and modes.
func sameFiles(place string, content files, group *int64) bool {
	seen := 0
	err := filepath.WalkDir(place, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(place, path)
		if err != nil {
			return err
		}
		f, ok := content[name]
		if !ok || !sameFile(path, f, group) {
			return errDifferent
		}
		seen++
		return nil
	})
	return err == nil && seen == len(content)
}

// errDifferent ends a comparison.
var errDifferent = errors.New("different")

func sameFile(path string, f file, group *int64) bool {
	var stat unix.Stat_t
	uid, gid := owner(f, group)
	if err := unix.Lstat(path, &stat); err != nil || stat.Mode != unix.S_IFREG|uint32(fileMode(f, group)) ||
		int(stat.Uid) != uid || int(stat.Gid) != gid || stat.Size != int64(len(f.data)) {
		return false
	}
	data, err := os.ReadFile(path)
	return err == nil && bytes.Equal(data, f.data)
}

// linkFiles makes the links that users open and removes all that is neither current nor wanted.
func linkFiles(dir, current string, content files, points []string) error {
	wanted, kept := map[string]bool{}, map[string]bool{}
	for path := range content {
		wanted[topOf(path)] = true
	}
	for _, point := range points {
		kept[topOf(point)] = true
	}
	for name := range wanted {
		if info, err := os.Lstat(filepath.Join(dir, name)); kept[name] && err == nil && info.IsDir() {
			continue // Something is mounted there, which hides the file.
		}
		if err := linkFile(filepath.Join(dir, name), filepath.Join(currentLink, name)); err != nil {
			return err
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("list volume: %w", err)
	}
	for _, entry := range entries {
		if name := entry.Name(); wanted[name] || kept[name] || name == current || name == currentLink {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, entry.Name())); err != nil {
			return fmt.Errorf("remove old file: %w", err)
		}
	}
	return nil
}

// linkFile makes one link, in place of whatever else is there.
func linkFile(link, target string) error {
	if is, err := os.Readlink(link); err == nil && is == target {
		return nil
	}
	if err := os.RemoveAll(link); err != nil {
		return fmt.Errorf("remove what is in the way of a file: %w", err)
	}
	if err := os.Symlink(target, link); err != nil {
		return fmt.Errorf("link file: %w", err)
	}
	return nil
}

func sortedPaths(content files) []string {
	paths := make([]string, 0, len(content))
	for path := range content {
		paths = append(paths, path)
	}
	sort.Strings(paths)
	return paths
}
