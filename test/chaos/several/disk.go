package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const (
	// diskSize is what a server may take: its database with what many floods left in it, as
	// much again while it takes over that of another, and its log. The file that holds it is sparse.
	diskSize = 8 << 30
	// bites is how long a full disk may go unnoticed while much is written.
	bites = 25 * time.Second
	// filler is the name of the file that fills a disk.
	filler = "filler"
	// floodSpace is the namespace in which much is written while a disk is full.
	floodSpace = "flood"
	// noRoom is what a server must say in the line with which it ends.
	noRoom = "no space left on device"
)

// disk is a small file system of its own under a server's database.
type disk struct{ image, at string }

// mountDisks gives the servers their disks, before they have data: the first one's holds its
// database only, since its folder has the nodes' as well, and the others' all that they have.
func (c *namespaces) mountDisks() error {
	for server, at := range map[string]string{
		"server-1": filepath.Join(c.dir, "etcd"),
		"server-2": filepath.Join(c.dir, "servers", "server-2"),
		"server-3": filepath.Join(c.dir, "servers", "server-3"),
	} {
		d := disk{image: c.dir + "-" + server + ".img", at: at}
		if err := d.mount(); err != nil {
			return err
		}
		c.disks[server] = d
	}
	return nil
}

func (d disk) mount() error {
	image, err := os.Create(d.image)
	if err != nil {
		return err
	}
	if err := errors.Join(image.Truncate(diskSize), image.Close(), os.MkdirAll(d.at, 0o700)); err != nil {
		return err
	}
	if err := run(exec.Command("mkfs.ext4", "-q", "-m", "0", "-E", "root_owner=0:0", d.image)); err != nil {
		return err
	}
	if err := run(exec.Command("mount", "-o", "loop", d.image, d.at)); err != nil {
		return err
	}
	return errors.Join(os.Remove(filepath.Join(d.at, "lost+found")), os.Chmod(d.at, 0o700))
}

// fill takes all that is left.
func (d disk) fill() error {
	f, err := os.OpenFile(filepath.Join(d.at, filler), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	var room syscall.Statfs_t
	if err := syscall.Fstatfs(int(f.Fd()), &room); err != nil {
		return err
	}
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	// What the file system needs for itself is left over; that is taken in small pieces.
	for size := int64(room.Bavail) * room.Bsize; size >= 4096; size /= 2 {
		for err = nil; err == nil; end += size {
			err = syscall.Fallocate(int(f.Fd()), 0, end, size)
		}
		if !errors.Is(err, syscall.ENOSPC) {
			return fmt.Errorf("fill %s: %w", d.at, err)
		}
		end -= size
	}
	return nil
}

// room says how much is left.
func (d disk) room() string {
	var room syscall.Statfs_t
	if err := syscall.Statfs(d.at, &room); err != nil {
		return err.Error()
	}
	return fmt.Sprintf(
		"%d of %d MB of its disk are free", int64(room.Bavail)*room.Bsize>>20, int64(room.Blocks)*room.Bsize>>20,
	)
}

func (d disk) free() error {
	err := os.Remove(filepath.Join(d.at, filler))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// unmount is for a cluster that is stopped.
func (d disk) unmount() error { return run(exec.Command("umount", d.at)) }

// fullDisk fills a server's disk, and writes much through another until the first has ended
// of it. The rest must go on, and the server must have said what is wrong.
func (c *namespaces) fullDisk(ctx context.Context, name string, j *journal) error {
	said := c.logEnd(name)
	before, err := c.pid(name)
	if err != nil {
		return err
	}
	if err := c.disks[name].fill(); err != nil {
		return err
	}
	flooding, stop := context.WithTimeout(ctx, bites)
	defer stop()
	for _, s := range c.servers {
		if s.name != name {
			go flood(flooding, s.client, s.name)
		}
	}
	for flooding.Err() == nil {
		if now, err := c.pid(name); err != nil || now != before || syscall.Kill(before, 0) != nil {
			j.bitten(c.lastLine(name, said), name)
			return nil
		}
		sleep(flooding, 50*time.Millisecond)
	}
	j.note("%s: its disk was full, and it did not need more", name)
	return nil
}

// bitten notes that a server has ended of its full disk, and with which words.
func (j *journal) bitten(words, name string) {
	j.note("%s has ended: %s", name, words)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.full++
	if !strings.Contains(words, noRoom) {
		j.violations = append(j.violations, fmt.Sprintf("%s ended while its disk was full, and says %q", name, words))
	}
}

// flood makes a database grow.
func flood(ctx context.Context, client kubernetes.Interface, who string) {
	objects := client.CoreV1().ConfigMaps(floodSpace)
	for n := 0; ctx.Err() == nil; n++ {
		much := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: who},
			Data:       map[string]string{"much": strings.Repeat(fmt.Sprintf("%08d", n), 100<<10)},
		}
		_, err := objects.Update(ctx, much, metav1.UpdateOptions{})
		if apierrors.IsNotFound(err) {
			space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: floodSpace}}
			_, _ = client.CoreV1().Namespaces().Create(ctx, space, metav1.CreateOptions{})
			_, err = objects.Create(ctx, much, metav1.CreateOptions{})
		}
		if err != nil {
			sleep(ctx, 100*time.Millisecond)
		}
	}
}

func (c *namespaces) logOf(name string) string {
	if name == c.servers[0].name {
		name = "server"
	}
	return filepath.Join(c.dir, "logs", name+".log")
}

// logEnd is how long a server's log is.
func (c *namespaces) logEnd(name string) int64 {
	info, err := os.Stat(c.logOf(name))
	if err != nil {
		return 0
	}
	return info.Size()
}

// lastLine is the last one that a server wrote before it ended, after a place in its log: the
// one that is for people, or the last of all.
func (c *namespaces) lastLine(name string, after int64) string {
	raw, err := os.ReadFile(c.logOf(name))
	if err != nil {
		return err.Error()
	}
	if after < int64(len(raw)) {
		raw = raw[after:]
	}
	lines := bytes.Split(bytes.TrimSpace(raw), []byte("\n"))
	for _, line := range lines {
		if bytes.HasPrefix(line, []byte("everynode: ")) || bytes.HasPrefix(line, []byte("error")) {
			return string(line)
		}
	}
	return string(lines[len(lines)-1])
}
