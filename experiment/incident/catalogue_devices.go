package incident

import (
	"strconv"

	"github.com/whylate/whylate/experiment/simulate/world"
	"github.com/whylate/whylate/ledger"
	"time"
)

// ofDevices are incidents of GPUs.
var ofDevices = []Incident{
	{
		Name: "thermal-throttling", Mechanism: "M08",
		What:  "The GPU gets hot and slows itself down: what computes takes longer, first of all prefill.",
		Needs: "throttling times of the GPU",
		Moves: append(up(Temperature, HeldHeat, PrefillRes), down(Clock)...), Keeps: []string{Arrivals, Residual, HeldPower, PowerLimit, MemoryClock},
		Cure: &Intervention{"device", "airflow", "as it was", "The GPU is cooled, or its work goes to another."},
		stage: func(s *stage) {
			s.add(ordinary(5))
			s.heat(0, 55)
			s.at(s.Onset+4*time.Second, func(w *world.World) {
				d := s.device(w, 0)
				d.Hold(d.Clock*(1-s.between(0.2, 0.7)), world.HeldByHeat)
			})
			s.at(s.end(), func(w *world.World) { s.device(w, 0).Hold(0, 0) })
			s.blameDevice(0)
		},
	},
	{
		Name: "warm-room", TwinOf: "thermal-throttling",
		What:  "The GPU gets warm, and stays below the temperature at which it would slow down.",
		Moves: up(Temperature), Keeps: []string{TTFT, ITL, TPOT, Residual, PrefillRes, Clock, HeldHeat},
		stage: func(s *stage) { s.add(ordinary(5)); s.heat(0, s.between(8, 16)); s.blameDevice(0) },
	},
	{
		Name: "power-cap", Mechanism: "M09",
		What:  "Somebody lowers the power limit: the clock falls at once, without heat.",
		Needs: "throttling times and the power limit of the GPU",
		Moves: append(up(HeldPower, PrefillRes), down(Clock, PowerLimit)...), Keeps: []string{Arrivals, Residual, HeldHeat, MemoryClock},
		Cure: &Intervention{"device", "power limit", "as it was", "The limit is raised to what it was."},
		stage: func(s *stage) {
			s.add(ordinary(5))
			limit := device.Limit * (1 - s.between(0.25, 0.6))
			s.during(func(w *world.World) {
				d := s.device(w, 0)
				d.Limit = limit
				d.Hold(d.Clock*(1-s.between(0.2, 0.65)), world.HeldByPower)
			}, func(w *world.World) {
				d := s.device(w, 0)
				d.Limit = device.Limit
				d.Hold(0, 0)
			})
			s.tap.tells = true
			s.told(ledger.ChangeOther, "power limit of "+s.name(), strconv.Itoa(int(device.Limit))+" W", strconv.Itoa(int(limit))+" W")
			s.blameDevice(0)
		},
	},
	{
		Name: "power-cap-grazed", TwinOf: "power-cap",
		What:  "Heavy work touches the power cap, as it always does: the reason is set, the clock hardly falls.",
		Moves: up(HeldPower), Keeps: []string{TTFT, ITL, TPOT, Residual, PrefillRes, HeldHeat, PowerLimit},
		stage: func(s *stage) {
			s.add(ordinary(5))
			s.during(func(w *world.World) { d := s.device(w, 0); d.Hold(d.Clock*(1-0.03*s.Severity), world.HeldByPower) }, func(w *world.World) { s.device(w, 0).Hold(0, 0) })
			s.blameDevice(0)
		},
	},
	{
		Name: "hardware-slowdown", Mechanism: "M10",
		What:  "The board slows down by hardware, memory as well: both phases suffer, whatever the temperature.",
		Needs: "the GPU's clock reasons and memory clock",
		Moves: append(up(Residual, PrefillRes, DeviceTime, Step, ITL), down(Clock, MemoryClock)...), Keeps: []string{Arrivals, HeldHeat},
		Cure: &Intervention{"device", "GPU", "out of service", "The GPU is replaced."},
		stage: func(s *stage) {
			s.add(ordinary(3))
			factor := s.between(1.2, 2.2)
			s.during(func(w *world.World) {
				d := s.device(w, 0)
				d.Hold(d.Clock*(1-s.between(0.4, 0.7)), world.HeldByHardware|world.HeldByPowerBrake)
				d.SlowMemory(factor)
				d.Memory = device.Memory / factor
			}, func(w *world.World) {
				d := s.device(w, 0)
				d.Hold(0, 0)
				d.SlowMemory(1)
				d.Memory = device.Memory
			})
			s.blameDevice(0)
		},
	},
	{
		Name: "idle-clocks", TwinOf: "hardware-slowdown",
		What:  "Nobody asks for anything, and the GPU lowers its clocks meanwhile.",
		Moves: down(Clock), Keeps: []string{TTFT, ITL, TPOT, Residual, HeldHeat, HeldPower},
		stage: func(s *stage) {
			before := ordinary(3)
			before.to = s.Onset
			s.add(before)
			after := ordinary(3)
			after.from = s.end()
			s.add(after)
			s.during(func(w *world.World) { d := s.device(w, 0); d.Hold(d.Clock*(1-s.between(0.4, 0.8)), world.HeldIdle) }, func(w *world.World) { s.device(w, 0).Hold(0, 0) })
			s.blameDevice(0)
		},
	},
	{
		Name: "straggler", Mechanism: "M17",
		What:  "One of two GPUs that share each layer is slower, and the other waits for it in every step.",
		Needs: "steps of every rank (L3)",
		Moves: append(up(Straggling, Step, DeviceTime, ITL), down(Clock)...), Keeps: []string{Arrivals, Preemptions, HeldHeat},
		Cure: &Intervention{"device", "GPU 1", "swapped with another", "The slowness goes with the GPU."},
		stage: func(s *stage) {
			s.pair()
			s.during(func(w *world.World) {
				d := s.device(w, 1)
				d.Hold(d.Clock*0.8, world.HeldByHardware)
				d.Share(s.between(1.15, 1.9))
			}, func(w *world.World) {
				d := s.device(w, 1)
				d.Hold(0, 0)
				d.Share(1)
			})
			s.blameDevice(1)
		},
	},
	{
		Name: "unequal-peers", TwinOf: "straggler",
		What:  "One of two GPUs is warmer than the other, and as fast.",
		Moves: up(Temperature), Keeps: []string{TTFT, ITL, TPOT, Straggling, Residual, Clock},
		stage: func(s *stage) { s.pair(); s.heat(1, s.between(10, 18)); s.blameDevice(1) },
	},
}

// heat warms the air around a GPU while the fault is on.
func (s *stage) heat(index int, by float64) {
	s.during(func(w *world.World) { s.device(w, index).Ambient += by }, func(w *world.World) { s.device(w, index).Ambient -= by })
}

// pair lets each engine compute on two GPUs.
func (s *stage) pair() {
	s.set("tensor_parallel_size", 2)
	for i := range s.config.Replicas {
		r := &s.config.Replicas[i].Ranks[0]
		r.GPUs = append(r.GPUs, s.gpu(i, 1))
	}
	s.add(ordinary(3))
}
