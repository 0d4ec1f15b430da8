package emulated

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A machine has what it is made of, is reached at ports of its own, and is off when its power was taken away.
func TestBootAndKill(t *testing.T) {
	dir := t.TempDir()
	emulator := "#!/bin/sh\necho \"$@\" >" + dir + "/words\necho started >&2\nexec sleep 600\n"
	if err := os.WriteFile(filepath.Join(dir, program), []byte(emulator), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	if !Available() {
		t.Fatal("the emulator is not found")
	}
	m, err := Boot(Hardware{Name: "m", Dir: dir, Processors: 2, Memory: 512, Kernel: "/kernel", MemoryDisk: "/disk", CommandLine: "root=/dev/vda", Ports: []int{6443}, More: []string{"-no-reboot"}})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Kill()
	var words string
	for end := time.Now().Add(time.Minute); words == "" || !strings.HasSuffix(words, "\n"); {
		text, _ := os.ReadFile(filepath.Join(dir, "words"))
		if words = string(text); time.Now().After(end) {
			t.Fatal("the emulator does not start")
		}
	}
	for _, want := range []string{"-smp 2 -m 512", "-kernel /kernel -initrd /disk", "console=ttyS0 panic=1 root=/dev/vda ",
		fmt.Sprintf("restrict=on,hostfwd=tcp:127.0.0.1:%d-10.0.2.15:7000,hostfwd=tcp:127.0.0.1:%d-10.0.2.15:6443 ", m.Port(7000), m.Port(6443)), "-no-reboot\n"} {
		if !strings.Contains(words, want) {
			t.Errorf("the emulator is told %q, without %q", words, want)
		}
	}
	select {
	case <-m.Ended():
		t.Error("the machine is off before its power is taken away")
	default:
	}
	m.Kill()
	<-m.Ended()
	m.Kill()
}

// The emulator's refusals are errors, and what it tells of itself in between is no answer.
func TestTell(t *testing.T) {
	m := &Machine{hardware: Hardware{Name: "m", Dir: t.TempDir(), Patience: time.Minute}}
	listener, err := net.Listen("unix", m.file(".qmp"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			fmt.Fprintln(conn, `{"QMP": {}}`)
			for lines := bufio.NewScanner(conn); lines.Scan(); {
				switch text := lines.Text(); {
				case strings.Contains(text, "hang up"):
					conn.Close()
				case strings.Contains(text, "nonsense"):
					fmt.Fprintln(conn, `{"error": {"desc": "not found"}}`)
				default:
					fmt.Fprintln(conn, `{"event": "RESET"}`+"\n"+`{"return": {}}`)
				}
			}
		}
	}()
	if err := m.Tell("one", "two"); err != nil {
		t.Error(err)
	}
	if err := m.Tell("one", "nonsense"); err == nil || !strings.Contains(err.Error(), "not found") {
		t.Errorf("a refusal: %v", err)
	}
	if err := m.Tell("hang up"); err == nil || !strings.Contains(err.Error(), "does not answer") {
		t.Errorf("an emulator that goes: %v", err)
	}
}
