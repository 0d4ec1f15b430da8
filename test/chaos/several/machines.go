package main

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
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/everynode/everynode/internal/testenv/freeport"
)

const (
	// memory is what an emulated machine has, in MB.
	memory = 1024
	// machineDisk is the size of its disk; the file that holds it is sparse.
	machineDisk = "4G"
	// slowWrites is how many times in a second a slow disk reads or writes.
	slowWrites = 12
	// ahead is by how much all clocks are ahead of when the cluster's certificates were made, so that
	// they are good an hour earlier, too.
	ahead = 3 * time.Hour
	// emulated is how much longer a client waits for an emulated server.
	emulated = 30 * time.Second
)

// machine is a server in an emulated machine.
type machine struct {
	name, address string
	// api and control are where it is reached from here.
	api, control int
	dir          string
	process      *exec.Cmd
	// jumped is by how much its clock is wrong.
	jumped time.Duration
}

// machines are the place of servers in emulated machines.
type machines struct{ all []*machine }

func emulates() bool {
	_, err := exec.LookPath("qemu-system-x86_64")
	return err == nil
}

// emulate makes three machines with a server on each; they are to be removed also after an error.
func emulate(ctx context.Context, binary, kernel, dir string) (*cluster, error) {
	place := &machines{}
	c := &cluster{place: place, pace: 5 * time.Second}
	memoryDisk, err := pack(ctx, binary, kernel, dir)
	if err != nil {
		return c, err
	}
	group, err := freeport.Take()
	if err != nil {
		return c, err
	}
	for n := range 3 {
		m := &machine{name: fmt.Sprint("server-", n+1), address: fmt.Sprintf("10.77.0.%d", n+1), dir: dir}
		place.all = append(place.all, m)
		if err := m.boot(filepath.Join(kernel, "vmlinuz"), memoryDisk, group, n+1); err != nil {
			return c, err
		}
	}
	for n, m := range place.all {
		if err := m.serve(ctx, place.all[0], n == 0); err != nil {
			return c, fmt.Errorf("%s: %w: %s", m.name, err, place.said(m.name))
		}
		client, err := m.client(ctx)
		if err == nil {
			err = until(ctx, func(ctx context.Context) error {
				return client.CoreV1().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
			})
		}
		if err != nil {
			return c, fmt.Errorf("%s is not ready: %w: %s", m.name, err, place.said(m.name))
		}
		fmt.Println(m.name, "is ready")
		c.servers = append(c.servers, server{m.name, m.address, client})
	}
	for _, m := range place.all {
		if err := m.ask(ctx, http.MethodPost, "/clock?by="+ahead.String(), nil, nil); err != nil {
			return c, err
		}
	}
	return c, nil
}

// boot starts the machine. Its first network leads to here and nowhere else, its second to the
// other machines.
func (m *machine) boot(kernel, memoryDisk string, group, number int) (err error) {
	if m.api, err = freeport.Take(); err == nil {
		m.control, err = freeport.Take()
	}
	if err != nil {
		return err
	}
	disk := filepath.Join(m.dir, m.name+".img")
	if err := run(exec.Command("mke2fs", "-q", "-t", "ext4", disk, machineDisk)); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(m.dir, m.name+".qemu.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	m.process = exec.Command("qemu-system-x86_64", "-accel", "tcg", "-smp", "1", "-m", fmt.Sprint(memory), "-display", "none", "-no-reboot",
		"-kernel", kernel, "-initrd", memoryDisk, "-append", fmt.Sprintf("console=ttyS0 panic=1 machine.name=%s machine.address=%s", m.name, m.address),
		"-serial", "file:"+m.console(), "-qmp", "unix:"+m.monitor()+",server=on,wait=off", "-device", "virtio-rng-pci",
		"-drive", "if=none,id=data,format=raw,file="+disk, "-device", "virtio-blk-pci,drive=data",
		"-netdev", fmt.Sprintf("user,id=outside,restrict=on,hostfwd=tcp:127.0.0.1:%d-10.0.2.15:6443,hostfwd=tcp:127.0.0.1:%d-10.0.2.15:7000", m.api, m.control),
		"-device", "virtio-net-pci,netdev=outside",
		"-netdev", fmt.Sprintf("socket,id=inside,mcast=230.77.0.1:%d,localaddr=127.0.0.1", group),
		"-device", fmt.Sprintf("virtio-net-pci,netdev=inside,mac=52:54:00:77:00:%02x", number))
	m.process.Stdout, m.process.Stderr = log, log
	m.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	return m.process.Start()
}

func (m *machine) console() string { return filepath.Join(m.dir, m.name+".console.log") }
func (m *machine) monitor() string { return filepath.Join(m.dir, m.name+".qmp") }

const machineData = "/data/everynode"

// serve has the machine's server run, as the first one or with the others.
func (m *machine) serve(ctx context.Context, first *machine, alone bool) error {
	args := []string{"/bin/everynode", "server", "--data-dir", machineData, "--server-name", m.name, "--listen", m.address + ":6443", "--listen", "10.0.2.15:6443"}
	if !alone {
		var token []byte
		if err := first.ask(ctx, http.MethodPost, "/run", []string{"/bin/everynode", "token", "create", "--server", "--data-dir", machineData}, &token); err != nil {
			return err
		}
		args = append(args, "--join", "https://"+first.address+":6443", "--token", strings.TrimSpace(string(token)))
	}
	return until(ctx, func(ctx context.Context) error { return m.ask(ctx, http.MethodPost, "/keep", args, nil) })
}

// client reaches the machine's server as its administrator.
func (m *machine) client(ctx context.Context) (kubernetes.Interface, error) {
	var kubeconfig []byte
	if err := until(ctx, func(ctx context.Context) error {
		return m.ask(ctx, http.MethodGet, "/file?path="+url.QueryEscape(machineData+"/kubeconfig"), nil, &kubeconfig)
	}); err != nil {
		return nil, err
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	config.Host, config.QPS, config.Timeout = fmt.Sprintf("https://127.0.0.1:%d", m.api), -1, emulated
	return kubernetes.NewForConfig(config)
}

// ask tells the machine to do something.
func (m *machine) ask(ctx context.Context, method, path string, words []string, out *[]byte) error {
	body, err := json.Marshal(words)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 4*emulated)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, fmt.Sprintf("http://127.0.0.1:%d%s", m.control, path), bytes.NewReader(body))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, strings.TrimSpace(string(answer)))
	}
	if out != nil {
		*out = answer
	}
	return err
}

// jump sets the machine's clock, by so much from what is right.
func (m *machine) jump(by time.Duration) error {
	err := m.ask(context.Background(), http.MethodPost, "/clock?by="+(by-m.jumped).String(), nil, nil)
	if err == nil {
		m.jumped = by
	}
	return err
}

// throttle has the machine's disk read and write only so often in a second; 0 ends that.
func (m *machine) throttle(times int) error {
	conn, err := net.Dial("unix", m.monitor())
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(emulated)); err != nil {
		return err
	}
	lines := bufio.NewScanner(conn)
	lines.Scan() // its greeting
	for _, command := range []string{
		`{"execute": "qmp_capabilities"}`,
		fmt.Sprintf(`{"execute": "block_set_io_throttle", "arguments": {"device": "data", "bps": 0, "bps_rd": 0, "bps_wr": 0, "iops": %d, "iops_rd": 0, "iops_wr": 0}}`, times),
	} {
		if _, err := fmt.Fprintln(conn, command); err != nil {
			return err
		}
		for answered := false; !answered; {
			if !lines.Scan() {
				return fmt.Errorf("the machine's maker does not answer: %w", cmp.Or(lines.Err(), io.EOF))
			}
			if bytes.Contains(lines.Bytes(), []byte(`"error"`)) {
				return errors.New(lines.Text())
			}
			answered = bytes.Contains(lines.Bytes(), []byte(`"return"`))
		}
	}
	return nil
}

func (p *machines) of(name string) *machine {
	for _, m := range p.all {
		if m.name == name {
			return m
		}
	}
	return nil
}

// kinds implements place. A day behind is before the cluster's certificates were made.
func (p *machines) kinds(_ context.Context, name string, _ *journal) []fault {
	m := p.of(name)
	right := func() error { return m.jump(0) }
	return []fault{
		{"clock an hour ahead", func() error { return m.jump(time.Hour) }, right},
		{"clock an hour behind", func() error { return m.jump(-time.Hour) }, right},
		{"clock a day behind", func() error { return m.jump(-24 * time.Hour) }, right},
		{"slow disk", func() error { return m.throttle(slowWrites) }, func() error { return m.throttle(0) }},
	}
}

// heal implements place.
func (p *machines) heal() {
	for _, m := range p.all {
		_ = m.jump(0)
		_ = m.throttle(0)
	}
}

// said implements place.
func (p *machines) said(name string) string {
	m := p.of(name)
	var words []byte
	if err := m.ask(context.Background(), http.MethodGet, "/said", nil, &words); err != nil {
		console, _ := os.ReadFile(m.console())
		words = console
	}
	lines := strings.Split(strings.TrimSpace(string(words)), "\n")
	return strings.Join(lines[max(0, len(lines)-5):], " | ")
}

// remove implements place.
func (p *machines) remove() error {
	for _, m := range p.all {
		if m.process != nil && m.process.Process != nil {
			_ = m.process.Process.Kill()
			_ = m.process.Wait()
		}
	}
	return nil
}
