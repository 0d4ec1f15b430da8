package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/everynode/everynode/internal/testenv/freeport"
	"github.com/everynode/everynode/test/emulated"
	"github.com/everynode/everynode/test/emulated/hand"
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
	// slowness is how much longer a client waits for an emulated server.
	slowness = 30 * time.Second
	// apiPort is the machine's, where its server listens.
	apiPort = 6443
)

// machine is a server in an emulated machine.
type machine struct {
	*emulated.Machine // nil until it is switched on
	name, address     string
	// jumped is by how much its clock is wrong.
	jumped time.Duration
}

// machines are the place of servers in emulated machines.
type machines struct{ all []*machine }

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
		m := &machine{name: fmt.Sprint("server-", n+1), address: fmt.Sprintf("10.77.0.%d", n+1)}
		place.all = append(place.all, m)
		if err := m.boot(filepath.Join(kernel, "vmlinuz"), memoryDisk, dir, group, n+1); err != nil {
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
		if _, err := m.Ask(ctx, http.MethodPost, "/clock?by="+ahead.String(), nil); err != nil {
			return c, err
		}
	}
	return c, nil
}

// boot starts the machine. Its second network leads to the other machines.
func (m *machine) boot(kernel, memoryDisk, dir string, group, number int) error {
	disk := filepath.Join(dir, m.name+".img")
	if err := run(exec.Command("mke2fs", "-q", "-t", "ext4", disk, machineDisk)); err != nil {
		return err
	}
	var err error
	m.Machine, err = emulated.Boot(emulated.Hardware{
		Name: m.name, Dir: dir, Patience: 4 * slowness, Processors: 1, Memory: memory, Kernel: kernel,
		MemoryDisk: memoryDisk, Ports: []int{apiPort},
		CommandLine: fmt.Sprintf("machine.name=%s machine.address=%s", m.name, m.address),
		More: []string{"-no-reboot",
			"-drive", "if=none,id=data,format=raw,file=" + disk, "-device", "virtio-blk-pci,drive=data",
			"-netdev", fmt.Sprintf("socket,id=inside,mcast=230.77.0.1:%d,localaddr=127.0.0.1", group),
			"-device", fmt.Sprintf("virtio-net-pci,netdev=inside,mac=52:54:00:77:00:%02x", number)},
	})
	return err
}

const machineData = "/data/everynode"

// serve has the machine's server run, as the first one or with the others.
func (m *machine) serve(ctx context.Context, first *machine, alone bool) error {
	args := []string{
		"/bin/everynode", "server", "--data-dir", machineData, "--server-name", m.name, "--listen", m.address + ":6443",
		"--listen", hand.Address + ":6443",
	}
	if !alone {
		token, err := first.Ask(ctx, http.MethodPost, "/run", []string{
			"/bin/everynode", "token", "create", "--server", "--data-dir", machineData,
		})
		if err != nil {
			return err
		}
		args = append(args, "--join", "https://"+first.address+":6443", "--token", strings.TrimSpace(string(token)))
	}
	return until(ctx, func(ctx context.Context) error {
		_, err := m.Ask(ctx, http.MethodPost, "/keep", args)
		return err
	})
}

// client reaches the machine's server as its administrator.
func (m *machine) client(ctx context.Context) (kubernetes.Interface, error) {
	var kubeconfig []byte
	if err := until(ctx, func(ctx context.Context) (err error) {
		kubeconfig, err = m.Ask(ctx, http.MethodGet, "/file?path="+url.QueryEscape(machineData+"/kubeconfig"), nil)
		return err
	}); err != nil {
		return nil, err
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	config.Host, config.QPS, config.Timeout = fmt.Sprintf("https://127.0.0.1:%d", m.Port(apiPort)), -1, slowness
	return kubernetes.NewForConfig(config)
}

// jump sets the machine's clock, by so much from what is right.
func (m *machine) jump(by time.Duration) error {
	_, err := m.Ask(context.Background(), http.MethodPost, "/clock?by="+(by-m.jumped).String(), nil)
	if err == nil {
		m.jumped = by
	}
	return err
}

// throttle has the machine's disk read and write only so often in a second; 0 ends that.
func (m *machine) throttle(times int) error {
	return m.Tell(fmt.Sprintf(
		`{"execute": "block_set_io_throttle", "arguments": {"device": "data", "bps": 0, "bps_rd": 0, "bps_wr": 0, `+
			`"iops": %d, "iops_rd": 0, "iops_wr": 0}}`,
		times,
	))
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
		if m.Machine != nil {
			_ = m.jump(0)
			_ = m.throttle(0)
		}
	}
}

// said implements place.
func (p *machines) said(name string) string {
	m := p.of(name)
	if m.Machine == nil {
		return "it was not switched on"
	}
	words, err := m.Ask(context.Background(), http.MethodGet, "/said", nil)
	if err != nil {
		words = []byte(m.Console(5))
	}
	lines := strings.Split(strings.TrimSpace(string(words)), "\n")
	return strings.Join(lines[max(0, len(lines)-5):], " | ")
}

// remove implements place.
func (p *machines) remove() error {
	for _, m := range p.all {
		if m.Machine != nil {
			m.Kill()
		}
	}
	return nil
}
