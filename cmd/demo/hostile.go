package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// forkForever starts processes until it may not, and goes on trying: what a node's limits must withstand.
func forkForever(ctx context.Context, _ []string, out io.Writer) error {
	started, told := 0, false
	for ctx.Err() == nil {
		cmd := exec.CommandContext(ctx, "/proc/self/exe", "sleep")
		err := cmd.Start()
		if err == nil {
			started++
			continue
		}
		if !told {
			fmt.Fprintf(out, "no more than %d processes: %v\n", started, err)
			told = true
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
	return nil
}

// flood writes lines as fast as they are taken.
func flood(ctx context.Context, _ []string, out io.Writer) error {
	w := bufio.NewWriter(out)
	for n := 0; ctx.Err() == nil; n++ {
		if _, err := fmt.Fprintf(w, "line %d of a program that says far too much, and does not stop to think about it\n",
			n); err != nil {
			return err
		}
	}
	return nil
}

// fillFile writes MIB megabytes to a file and stays.
func fillFile(ctx context.Context, args []string, out io.Writer) error {
	if len(args) != 2 {
		return fmt.Errorf("usage: fill FILE MIB")
	}
	size, err := strconv.Atoi(args[1])
	if err != nil {
		return fmt.Errorf("%q is not a number of megabytes", args[1])
	}
	f, err := os.Create(args[0])
	if err != nil {
		return err
	}
	defer f.Close()
	for range size {
		if _, err := f.Write(make([]byte, 1<<20)); err != nil {
			return err
		}
	}
	fmt.Fprintf(out, "wrote %d MiB to %s\n", size, args[0])
	<-ctx.Done()
	return nil
}

// How much tangle makes: enough for a path of more than 4,096 bytes, and for many entries.
const (
	tangleDepth = 300
	tangleFiles = 3000
)

// tangle fills a folder with what is hard to measure and to remove, and stays: folders one in the other with long
// names, links out of it, a named pipe, many files, and one of so many megabytes in the innermost folder.
func tangle(ctx context.Context, args []string, out io.Writer) error {
	if len(args) != 2 {
		return fmt.Errorf("usage: tangle DIR MIB")
	}
	if err := os.Chdir(args[0]); err != nil {
		return err
	}
	for i := range tangleFiles {
		if err := os.WriteFile(fmt.Sprint("file-", i), nil, 0o600); err != nil {
			return err
		}
	}
	name := strings.Repeat("deep-", 50)
	for range tangleDepth {
		for link, target := range map[string]string{"root": "/", "up": "..", "self": ".", "passwords": "/etc/shadow"} {
			if err := os.Symlink(target, link); err != nil {
				return err
			}
		}
		if err := syscall.Mkfifo("pipe", 0o666); err != nil {
			return err
		}
		if err := os.Mkdir(name, 0o700); err != nil {
			return err
		}
		if err := os.Chdir(name); err != nil {
			return err
		}
	}
	return fillFile(ctx, []string{"hidden", args[1]}, out)
}

// scream fills the file of last words, ends none of its lines, and fails.
func scream(_ context.Context, args []string, out io.Writer) error {
	if len(args) != 1 {
		return fmt.Errorf("usage: scream FILE")
	}
	f, err := os.OpenFile(args[0], os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	for range 4096 {
		if _, err := f.WriteString(strings.Repeat("y", 1023) + "!"); err != nil {
			return err
		}
		if _, err := io.WriteString(out, strings.Repeat("x", 1024)); err != nil {
			return err
		}
	}
	if err := f.Close(); err != nil {
		return err
	}
	return errors.New("said enough")
}

// bewitch writes into its log and into FILE what moves a terminal's cursor, forges lines and is no text, and fails.
func bewitch(_ context.Context, args []string, out io.Writer) error {
	if len(args) != 1 {
		return fmt.Errorf("usage: bewitch FILE")
	}
	const spell = "\x1b[2J\x1b[1;1H\x1b]0;bewitched\x07\rE1122 00:00:00.000000 1 forged.go:1] " +
		"\"forged\"\x9b31m\xff\u202e\x00"
	if err := os.WriteFile(args[0], []byte("last "+spell+
		"\nE1122 00:00:00.000000 1 forged.go:2] \"forged\"\n"), 0); err != nil {
		return err
	}
	if _, err := io.WriteString(out, spell+"\n"+strings.Repeat("long", 1<<18)+"\nend "+spell+"\n"); err != nil {
		return err
	}
	return errors.New("said " + spell)
}

// batter asks the name server for names that nobody knows, and opens connections to HOST:PORT and to the name server,
// for so many seconds; then it stays. It keeps no more than 500 connections.
func batter(ctx context.Context, args []string, out io.Writer) error {
	if len(args) != 2 {
		return fmt.Errorf("usage: batter HOST:PORT SECONDS")
	}
	seconds, err := strconv.Atoi(args[1])
	if err != nil {
		return fmt.Errorf("%q is not a number of seconds", args[1])
	}
	server, err := nameServer("/etc/resolv.conf")
	if err != nil {
		return err
	}
	questions, err := net.Dial("udp", server)
	if err != nil {
		return err
	}
	defer questions.Close()
	fmt.Fprintln(out, "battering")
	asked := 0
	var open []net.Conn
	for end := time.Now().Add(time.Duration(seconds) * time.Second); ctx.Err() == nil && time.Now().Before(end); asked++ {
		// A question for an address, as it is on the wire: ID, flags, counts, name, type, class.
		label := fmt.Sprintf("n%d", asked)
		packet := append([]byte{byte(asked >> 8), byte(asked), 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, byte(len(label))}, label...)
		packet = append(packet, "\x07example\x03org\x00\x00\x01\x00\x01"...)
		_, _ = questions.Write(packet) // It may be too fast for the kernel.
		if asked%50 != 0 {
			continue
		}
		for _, where := range []string{args[0], server} {
			dialer := net.Dialer{Timeout: time.Second}
			if conn, err := dialer.Dial("tcp", where); err == nil {
				open = append(open, conn)
			}
		}
		for len(open) > 500 {
			_ = open[0].Close()
			open = open[1:]
		}
	}
	for _, conn := range open {
		_ = conn.Close()
	}
	fmt.Fprintf(out, "asked more than a thousand times: %v\n", asked > 1000)
	<-ctx.Done()
	return nil
}

// nameServer is the first one in a resolver file.
func nameServer(path string) (string, error) {
	text, err := os.ReadFile(filepath.Clean(path))
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "nameserver" {
			return net.JoinHostPort(fields[1], "53"), nil
		}
	}
	return "", fmt.Errorf("%s names no server", path)
}
