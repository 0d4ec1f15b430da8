package shutdown

// MachineStopsBy is MachineStops for another folder and another systemd.
var MachineStopsBy = machineStops
