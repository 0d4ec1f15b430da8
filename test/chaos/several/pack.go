package main

import (
	"bufio"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// drivers are the kernel's modules that a machine needs, besides those that these need.
var drivers = []string{"virtio_pci", "virtio_blk", "virtio_net", "virtio-rng", "ext4", "crc32c_generic"}

// pack makes the disk in memory that a machine starts from: its first program, ours, and modules.
func pack(ctx context.Context, binary, kernel, dir string) (file string, err error) {
	if _, err := os.Stat(filepath.Join(kernel, "vmlinuz")); err != nil {
		return "", fmt.Errorf("there is no kernel: run hack/emulated-kernel.sh, and name its folder with -kernel: %w", err)
	}
	first := filepath.Join(dir, "init")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", first, "./test/chaos/several/machine")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if err := run(build); err != nil {
		return "", err
	}
	modules, err := ordered(filepath.Join(kernel, "modules"), drivers)
	if err != nil {
		return "", err
	}
	file = filepath.Join(dir, "memory.cpio")
	out, err := os.Create(file)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	a := &archive{w: bufio.NewWriter(out)}
	for _, folder := range []string{"bin", "modules", "proc", "sys", "dev", "tmp", "run", "root"} {
		a.folder(folder)
	}
	a.file("init", first)
	a.file("bin/everynode", binary)
	var names []string
	for _, module := range modules {
		name := filepath.Base(module)
		names = append(names, name)
		a.file("modules/"+name, module)
	}
	a.content("modules/order", 0o644, int64(len(strings.Join(names, "\n"))), strings.NewReader(strings.Join(names, "\n")))
	a.content("TRAILER!!!", 0, 0, strings.NewReader(""))
	return file, errors.Join(a.err, a.w.Flush())
}

// ordered are the files of modules and of those that they need, these first. What the kernel has
// in itself is no file.
func ordered(dir string, names []string) (out []string, err error) {
	files, inside := map[string]string{}, map[string]bool{}
	err = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if name, _, ok := strings.Cut(filepath.Base(path), ".ko"); ok {
			files[moduleName(name)] = path
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	builtin, err := os.ReadFile(filepath.Join(dir, "modules.builtin"))
	if err != nil {
		return nil, err
	}
	for file := range strings.FieldsSeq(string(builtin)) {
		inside[moduleName(strings.TrimSuffix(filepath.Base(file), ".ko"))] = true
	}
	taken := map[string]bool{}
	var take func(name string) error
	take = func(name string) error {
		name = moduleName(name)
		if taken[name] || inside[name] {
			return nil
		}
		taken[name] = true
		if files[name] == "" {
			return fmt.Errorf("the kernel has no module %s", name)
		}
		needs, err := needed(files[name])
		if err != nil {
			return err
		}
		for _, need := range needs {
			if err := take(need); err != nil {
				return err
			}
		}
		out = append(out, files[name])
		return nil
	}
	for _, name := range names {
		if err := take(name); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func moduleName(name string) string { return strings.ReplaceAll(name, "-", "_") }

// needed are the modules that one needs, as it says itself.
func needed(file string) ([]string, error) {
	if filepath.Ext(file) != ".ko" {
		return nil, fmt.Errorf("the module %s is compressed, which machines do not read", file)
	}
	module, err := elf.Open(file)
	if err != nil {
		return nil, err
	}
	defer module.Close()
	section := module.Section(".modinfo")
	if section == nil {
		return nil, fmt.Errorf("the module %s says nothing of itself", file)
	}
	said, err := section.Data()
	for word := range strings.SplitSeq(string(said), "\x00") {
		if list, ok := strings.CutPrefix(word, "depends="); ok {
			return strings.FieldsFunc(list, func(r rune) bool { return r == ',' }), err
		}
	}
	return nil, err
}

// archive is a cpio archive as the kernel reads it.
type archive struct {
	w    *bufio.Writer
	next int
	err  error
}

func (a *archive) folder(name string) { a.content(name, 0o40755, 0, strings.NewReader("")) }

func (a *archive) file(name, from string) {
	f, err := os.Open(from)
	if err != nil {
		a.err = errors.Join(a.err, err)
		return
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		a.err = errors.Join(a.err, err)
		return
	}
	a.content(name, 0o755, info.Size(), f)
}

func (a *archive) content(name string, mode int, size int64, from io.Reader) {
	if a.err != nil {
		return
	}
	if mode&0o170000 == 0 && mode != 0 {
		mode |= 0o100000
	}
	a.next++
	_, a.err = fmt.Fprintf(
		a.w, "070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X", a.next, mode, 0, 0, 1, 0, size, 0, 0, 0, 0,
		len(name)+1, 0,
	)
	a.text(name+"\x00", 110+len(name)+1)
	if a.err == nil {
		var n int64
		n, a.err = io.Copy(a.w, from)
		if a.err == nil {
			a.text("", int(n))
		}
	}
}

// text writes text, and fills up what has so many bytes to the next multiple of four.
func (a *archive) text(text string, bytes int) {
	if a.err == nil {
		_, a.err = a.w.WriteString(text + "\x00\x00\x00"[:(4-bytes%4)%4])
	}
}
