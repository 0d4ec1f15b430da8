// Package emulated has machines for tests, under QEMU: with the kernel and the disks that the test gives them, and with
// a network over which only the test reaches the program in them that does what they are told (package hand).
package emulated

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/everynode/everynode/internal/testenv/freeport"
	"github.com/everynode/everynode/test/emulated/hand"
)

const program = "qemu-system-x86_64"

// Available says whether there is an emulator here.
func Available() bool {
	_, err := exec.LookPath(program)
	return err == nil
}

// Hardware is what a machine is made of.
type Hardware struct {
	// Dir has its files: NAME.console.log, NAME.qemu.log and NAME.qmp.
	Name, Dir string
	// Patience is how long the machine may take for what it is told.
	Patience time.Duration
	// Memory is in MB.
	Processors, Memory int
	// Kernel and MemoryDisk are files, CommandLine what the kernel is told besides where its console is.
	Kernel, MemoryDisk, CommandLine string
	// Ports are more of the machine's that are reached from here.
	Ports []int
	// More are arguments of the emulator, for disks and other networks.
	More []string
}

// Machine is one that was switched on.
type Machine struct {
	hardware Hardware
	// ports are where the machine's are reached from here.
	ports   map[int]int
	process *exec.Cmd
	ended   chan struct{}
}

// Boot switches a machine on. It is off at the latest when the test's process has ended.
func Boot(h Hardware) (*Machine, error) {
	m := &Machine{hardware: h, ports: map[int]int{}, ended: make(chan struct{})}
	forwards := ""
	for _, port := range append([]int{hand.Port}, h.Ports...) {
		here, err := freeport.Take()
		if err != nil {
			return nil, err
		}
		m.ports[port] = here
		forwards += fmt.Sprintf(",hostfwd=tcp:127.0.0.1:%d-%s:%d", here, hand.Address, port)
	}
	log, err := os.OpenFile(m.file(".qemu.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	console := m.file(".console.log")
	// With a thread for each processor, QEMU 7.2 spoils the stack where an interrupt comes during a CMPXCHG16B, and runs
	// code that the kernel has changed meanwhile on another one.
	args := []string{
		"-accel",
		"tcg,thread=single",
		"-cpu",
		"qemu64,-cx16",
		"-smp",
		fmt.Sprint(h.Processors),
		"-m",
		fmt.Sprint(h.Memory),
		"-display",
		"none",
		"-kernel",
		h.Kernel,
		"-initrd",
		h.MemoryDisk,
		"-append",
		"console=ttyS0 panic=1 " + h.CommandLine,
		"-chardev",
		"file,id=console,append=on,path=" + console,
		"-serial",
		"chardev:console",
		"-qmp",
		"unix:" + m.file(".qmp") + ",server=on,wait=off",
		"-device",
		"virtio-rng-pci",
		"-netdev",
		"user,id=control,restrict=on" + forwards,
		"-device",
		"virtio-net-pci,netdev=control",
	}
	m.process = exec.Command(program, append(args, h.More...)...)
	m.process.Stdout, m.process.Stderr = log, log
	m.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := m.process.Start(); err != nil {
		return nil, fmt.Errorf("switch %s on: %w", h.Name, err)
	}
	go func() {
		_ = m.process.Wait() // how it ends is what its maker did
		close(m.ended)
	}()
	return m, nil
}

func (m *Machine) file(ending string) string {
	return filepath.Join(m.hardware.Dir, m.hardware.Name+ending)
}

// Kill takes the machine's power away, and waits until it is off. It may be off already.
func (m *Machine) Kill() {
	_ = m.process.Process.Kill()
	<-m.ended
}

// Ended is closed when the machine is off.
func (m *Machine) Ended() <-chan struct{} { return m.ended }

// Port is where one of the machine's ports is reached from here.
func (m *Machine) Port(port int) int { return m.ports[port] }

// Console is the end of what the machine and its emulator said.
func (m *Machine) Console(lines int) string {
	var all []string
	for _, ending := range []string{".qemu.log", ".console.log"} {
		text, err := os.ReadFile(m.file(ending))
		if err != nil {
			all = append(all, err.Error())
		}
		all = append(all, strings.Split(strings.TrimSpace(string(text)), "\n")...)
	}
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// Ask has the machine's hand do something, and returns its answer.
func (m *Machine) Ask(ctx context.Context, method, path string, words []string) ([]byte, error) {
	body, err := json.Marshal(words)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, m.hardware.Patience)
	defer cancel()
	request, err := http.NewRequestWithContext(
		ctx, method, fmt.Sprintf("http://127.0.0.1:%d%s", m.ports[hand.Port], path), bytes.NewReader(body),
	)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, strings.TrimSpace(string(answer)))
	}
	return answer, err
}

// Tell has the emulator do something, in its own language (QMP).
func (m *Machine) Tell(commands ...string) error {
	conn, err := net.Dial("unix", m.file(".qmp"))
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(m.hardware.Patience)); err != nil {
		return err
	}
	lines := bufio.NewScanner(conn)
	lines.Scan() // its greeting
	for _, command := range append([]string{`{"execute": "qmp_capabilities"}`}, commands...) {
		if _, err := fmt.Fprintln(conn, command); err != nil {
			return err
		}
		for answered := false; !answered; {
			if !lines.Scan() {
				return fmt.Errorf("the emulator does not answer: %w", cmp.Or(lines.Err(), io.EOF))
			}
			if bytes.Contains(lines.Bytes(), []byte(`"error"`)) {
				return errors.New(lines.Text())
			}
			answered = bytes.Contains(lines.Bytes(), []byte(`"return"`))
		}
	}
	return nil
}
