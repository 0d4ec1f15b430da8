package main

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// tarOptions are the few of tar's that `kubectl cp` uses.
type tarOptions struct {
	create, extract bool
	dir             string
	paths           []string
}

// tarCommand writes files to its output, or unpacks its input, as tar does with `-f -`.
func tarCommand(_ context.Context, args []string, out io.Writer) error {
	o, err := parseTar(args)
	if err != nil {
		return err
	}
	if o.create {
		return packFiles(o, out)
	}
	return unpackFiles(o.dir, os.Stdin)
}

func parseTar(args []string) (tarOptions, error) {
	o := tarOptions{dir: "."}
	for i := 0; i < len(args); i++ {
		arg := args[i]
		next := func() string {
			i++
			if i < len(args) {
				return args[i]
			}
			return ""
		}
		switch {
		case arg == "-C":
			o.dir = next()
		case strings.HasPrefix(arg, "--no-same-"):
			// Owners and permissions follow those who unpack, here always.
		case strings.HasPrefix(arg, "-") || (i == 0 && strings.Trim(arg, "cxfmv") == ""):
			o.create = o.create || strings.Contains(arg, "c")
			o.extract = o.extract || strings.Contains(arg, "x")
			if strings.HasSuffix(arg, "f") && next() != "-" {
				return o, errors.New("reads and writes archives only as a stream: give -f -")
			}
		default:
			o.paths = append(o.paths, arg)
		}
	}
	if o.create == o.extract {
		return o, errors.New("usage: tar -cf - FILE... | tar -xf - [-C DIR]")
	}
	return o, nil
}

func packFiles(o tarOptions, out io.Writer) error {
	w := tar.NewWriter(out)
	for _, path := range o.paths {
		if !filepath.IsAbs(path) {
			path = filepath.Join(o.dir, path)
		}
		err := filepath.WalkDir(path, func(path string, _ fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			return packFile(w, path)
		})
		if err != nil {
			return err
		}
	}
	return w.Close()
}

func packFile(w *tar.Writer, path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	link := ""
	if info.Mode()&fs.ModeSymlink != 0 {
		if link, err = os.Readlink(path); err != nil {
			return err
		}
	}
	header, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return err
	}
	header.Name = strings.TrimPrefix(path, "/")
	if info.IsDir() {
		header.Name += "/"
	}
	if err := w.WriteHeader(header); err != nil || !info.Mode().IsRegular() {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.CopyN(w, f, header.Size)
	return err
}

func unpackFiles(dir string, in io.Reader) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for r := tar.NewReader(in); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			// Whoever sends may send padding after the end.
			_, err = io.Copy(io.Discard, in)
			return err
		}
		if err != nil {
			return err
		}
		if err := unpackFile(root, header, r); err != nil {
			return fmt.Errorf("%s: %w", header.Name, err)
		}
	}
}

// unpackFile keeps inside root, whatever the archive says.
func unpackFile(root *os.Root, header *tar.Header, content io.Reader) error {
	name := strings.TrimSuffix(strings.TrimPrefix(header.Name, "/"), "/")
	if name == "" || name == "." {
		return nil
	}
	mode := header.FileInfo().Mode().Perm()
	if header.Typeflag == tar.TypeDir {
		return root.MkdirAll(name, mode|0o700)
	}
	if parent := filepath.Dir(name); parent != "." {
		if err := root.MkdirAll(parent, 0o755); err != nil {
			return err
		}
	}
	switch header.Typeflag {
	case tar.TypeSymlink:
		return root.Symlink(header.Linkname, name)
	case tar.TypeReg:
		f, err := root.OpenFile(name, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, mode)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, content)
		return errors.Join(err, f.Close())
	default:
		return fmt.Errorf("cannot unpack an entry of type %q", header.Typeflag)
	}
}

// test is as much of the program test as `kubectl cp` needs.
func test(_ context.Context, args []string, _ io.Writer) error {
	if len(args) != 2 || (args[0] != "-d" && args[0] != "-e") {
		return errors.New("usage: test -d|-e PATH")
	}
	info, err := os.Stat(args[1])
	if err != nil || (args[0] == "-d" && !info.IsDir()) {
		return exitCode(1)
	}
	return nil
}
