package devices

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/agent/devices/ledger"
	"github.com/everynode/everynode/internal/agent/mend"
	"github.com/everynode/everynode/internal/files/wholefile"
)

// checkpointName is the file's name in the folder of device plugins. Its form is the kubelet's, which some plugins and
// monitors read.
const checkpointName = "kubelet_internal_checkpoint"

// noNode stands for the NUMA node of devices that are near to none.
const noNode = -1

type checkpoint struct {
	Data     json.RawMessage
	Checksum uint64
}

type checkpointData struct {
	PodDeviceEntries  []entry
	RegisteredDevices map[string][]string
}

type entry struct {
	PodUID        types.UID
	ContainerName string
	ResourceName  string
	// DeviceIDs are by NUMA node.
	DeviceIDs map[int64][]string
	AllocResp []byte
}

func checksum(data []byte) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(data) // never fails
	return h.Sum64()
}

// encode writes what must outlive the agent. A grant that its plugin has not confirmed yet is left out.
func encode(l *ledger.Ledger) ([]byte, error) {
	data := checkpointData{PodDeviceEntries: []entry{}, RegisteredDevices: map[string][]string{}}
	for _, g := range l.Grants() {
		if g.Answer == nil {
			continue
		}
		data.PodDeviceEntries = append(data.PodDeviceEntries, entry{g.Pod, g.Container, g.Resource, byNode(l, &g), g.Answer})
	}
	for _, name := range l.Resources() {
		ids := []string{}
		for _, d := range l.Devices(name) {
			ids = append(ids, d.ID)
		}
		data.RegisteredDevices[name] = ids
	}
	raw, err := json.Marshal(data)
	if err != nil {
		return nil, fmt.Errorf("write down the devices of pods: %w", err)
	}
	out, err := json.Marshal(checkpoint{raw, checksum(raw)})
	if err != nil {
		return nil, fmt.Errorf("write down the devices of pods: %w", err)
	}
	return out, nil
}

func byNode(l *ledger.Ledger, g *ledger.Grant) map[int64][]string {
	nodes := map[string]int64{}
	for _, d := range l.Devices(g.Resource) {
		if len(d.Nodes) > 0 {
			nodes[d.ID] = d.Nodes[0]
		}
	}
	out := map[int64][]string{}
	for _, id := range g.Devices {
		node, ok := nodes[id]
		if !ok {
			node = noNode
		}
		out[node] = append(out[node], id)
	}
	return out
}

// load reads the checkpoint; a node that has none starts with empty books.
func (m *Manager) load() error {
	raw, err := os.ReadFile(m.checkpointPath())
	m.forgot = true
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read which devices pods have: %w", err)
	}
	data, err := decode(raw)
	if err != nil {
		return fmt.Errorf(
			"%s does not say which devices pods have: %w; end the pods with devices, move the file away and start the agent "+
				"again",
			m.checkpointPath(), err,
		)
	}
	for name := range data.RegisteredDevices {
		m.ledger.Expect(name, m.cfg.Clock.Now())
	}
	for _, e := range data.PodDeviceEntries {
		g := ledger.Grant{
			Pod:       e.PodUID,
			Container: e.ContainerName,
			Resource:  e.ResourceName,
			Answer:    append([]byte{}, e.AllocResp...),
		}
		for _, ids := range e.DeviceIDs {
			g.Devices = append(g.Devices, ids...)
		}
		m.ledger.Put(g)
	}
	m.forgot, m.saved = false, raw
	return nil
}

// Mend implements mend.Part.
func (m *Manager) Mend() (mended []string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.broken != nil || m.saved == nil {
		return nil, nil
	}
	return mend.Files(mend.File{Path: m.checkpointPath(), Mode: 0o600, Content: m.saved})
}

func decode(raw []byte) (checkpointData, error) {
	var c checkpoint
	if err := json.Unmarshal(raw, &c); err != nil {
		return checkpointData{}, err
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, c.Data); err != nil {
		return checkpointData{}, err
	}
	if checksum(compact.Bytes()) != c.Checksum {
		return checkpointData{}, errors.New("its checksum is wrong")
	}
	var data checkpointData
	err := json.Unmarshal(c.Data, &data)
	return data, err
}

func (m *Manager) checkpointPath() string { return filepath.Join(m.cfg.Dir, checkpointName) }

// saveNow brings the checkpoint up to date before anybody relies on it.
func (m *Manager) saveNow() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.save()
}

// save brings the checkpoint up to date. The caller holds mu.
func (m *Manager) save() error {
	raw, err := encode(m.ledger)
	if err != nil || bytes.Equal(raw, m.saved) {
		return err
	}
	if err := wholefile.Write(m.checkpointPath(), 0o600, wholefile.Bytes(raw)); err != nil {
		return fmt.Errorf("write down which devices pods have: %w", err)
	}
	m.saved = raw
	return nil
}
