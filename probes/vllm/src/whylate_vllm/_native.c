/* The steady paths of the probe: a batch that is the last one again, its completion, and the frame that says so.

   Nothing here knows more than the Python beside it. What is not steady is left to it (ring.py, scheduler.py, engine.py), and
   both work on the same state: the three structs below are the bases of Guard, Ring and Recorder, and their fields are these
   classes' attributes. After a hundredth of a second of a model's work the caches are cold, and it is the number of lines of
   memory that costs: that is why the state stands close together, and why the table of the checksum is so small. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#ifndef PyBUF_WRITE /* not in the limited API of 3.10, where the function that takes it is */
#define PyBUF_WRITE 0x200
#endif
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "frames are little-endian"
#endif

enum { VERSION = 1 }; /* of what native.py expects of this file */

/* docs/formats/stream.md, and scheduler.py's own numbers. */
enum { HEADER = 16384, FRAME_MAX = 1 << 20, OVERHEAD = 28, MAGIC = 0x4C57, SCHEDULED = 12, DONE = 13 };
enum { HEAD = 8, WRITTEN, DROPPED, ERRORS, LAUNCHED, LAUNCHED_AT, COMPLETED, COMPLETED_AT, CLOCK, LOAD = 19, WORDS };
enum { FULL_EVERY = 64, PENDING_MAX = 64, TOGETHER = 16, AT_ONCE = 256 };
enum { SMALL = 256 }; /* bytes of a frame that is made here */

/* Of the one interpreter that has loaded this. */
static PyObject *Fuse_type, *Writer_type, *State_type, *Hook_type, *MethodType, *wire_frame, *nobody;
static PyObject *of_whylate, *of_iteration, *of_tokens, *of_total, *of_drafts, *of_outputs, *of_timestamp, *of_output;

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Types that are bases: their Python subclasses have the collector, and a dictionary. */

static void dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    freefunc free = (freefunc)PyType_GetSlot(type, Py_tp_free);
    free(self);
    Py_DECREF(type);
}

/* The fuse of a hook: hooks.Guard. */

typedef struct {
    PyObject_HEAD
    char on;
} Fuse;

static PyMemberDef fuse_members[] = {{"on", T_BOOL, offsetof(Fuse, on), 0, NULL}, {0}};
static PyType_Slot fuse_slots[] = {{Py_tp_dealloc, dealloc}, {Py_tp_members, fuse_members}, {0, NULL}};
static PyType_Spec fuse_spec = {
    "whylate_vllm._native.Fuse", sizeof(Fuse), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, fuse_slots,
};

/* A ring's file. It is written with pwrite(2), not through a mapping: when somebody makes the file shorter, a store into the
   pages that are gone is SIGBUS and the engine's death, while a pwrite succeeds (the file is longer again) or fails. The file's
   length is looked at before each frame, so that a cut is seen at the next one. process_vm_writev(2) into a mapping of our own
   would fail in the same call, but a seccomp filter may refuse it, and none refuses pwrite. Two frames with their words cost (CPU
   time of the thread, caches warm and swept): stores 0.3 and 1.9 us, this 1.7 and 11.6, process_vm_writev 1.9 and 12.6.

   The interpreter's lock is kept: a hundred bytes are copied in memory, and who gave the lock away might wait 5 ms for it.

   The header's words are one pwrite after that of the frame, of aligned words from aligned words: the kernel copies them whole
   (tests/test_native.py watches it from another process), and a reader believes no frame without its checksum. */

typedef struct {
    PyObject_HEAD
    int fd;
    int64_t at, size, due; /* position in the data, its size, when the clock is due */
    uint64_t words[WORDS]; /* the header's, from its beginning: only those from HEAD on are written */
} Writer;

static PyMemberDef writer_members[] = {
    {"fd", T_INT, offsetof(Writer, fd), 0, NULL},
    {"at", T_LONGLONG, offsetof(Writer, at), 0, NULL},
    {"size", T_LONGLONG, offsetof(Writer, size), 0, NULL},
    {"due", T_LONGLONG, offsetof(Writer, due), 0, NULL},
    {"head", T_ULONGLONG, offsetof(Writer, words) + 8 * HEAD, 0, NULL},
    {"sequence", T_ULONGLONG, offsetof(Writer, words) + 8 * WRITTEN, 0, NULL},
    {0},
};

/* CRC-32 in two steps a byte: its table is one line of memory. */
static uint32_t checksum(const unsigned char *data, size_t n) {
    static const uint32_t table[16] __attribute__((aligned(64))) = {
        0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4, 0x4db26158, 0x5005713c,
        0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c, 0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c,
    };
    uint32_t crc = ~0u;
    while (n--) {
        crc ^= *data++;
        crc = crc >> 4 ^ table[crc & 15];
        crc = crc >> 4 ^ table[crc & 15];
    }
    return ~crc;
}

/* The file is shorter than it was, or a write has failed. _look() says the former: it raises Refused. */
static int lost(Writer *w) {
    int error = errno;
    PyObject *looked = PyObject_CallMethod((PyObject *)w, "_look", NULL);
    if (!looked)
        return -1;
    Py_DECREF(looked);
    errno = error ? error : EIO;
    PyErr_SetFromErrno(PyExc_OSError);
    return -1;
}

static int store(Writer *w, const void *data, size_t n, int64_t offset) {
    errno = 0;
    return pwrite(w->fd, data, n, offset) == (ssize_t)n ? 0 : lost(w);
}

static int publish(Writer *w) {
    return store(w, w->words + HEAD, 8 * (WORDS - HEAD), 8 * HEAD);
}

static int put(Writer *w, const char *frame, int64_t size) {
    int64_t at = w->at;
    if (size > FRAME_MAX || size > w->size) {
        w->words[DROPPED]++;
        return publish(w);
    }
    errno = 0;
    if (lseek(w->fd, 0, SEEK_END) < HEADER + w->size)
        return lost(w);
    if (at + size > w->size) {
        if (at < w->size) {
            if (store(w, "\0\0\0\0\0\0\0", 8, HEADER + at) < 0)
                return -1;
            w->words[HEAD] += w->size - at;
        }
        at = 0;
    }
    if (store(w, frame, size, HEADER + at) < 0)
        return -1;
    w->at = at + size;
    w->words[WRITTEN]++;
    w->words[HEAD] += size;
    return publish(w);
}

static int write_frame(Writer *w, int kind, int flags, int64_t time, const void *body, size_t n) {
    if (time > w->due) {
        PyObject *told = PyObject_CallMethod((PyObject *)w, "clock", NULL);
        if (!told)
            return -1;
        Py_DECREF(told);
    }
    uint64_t sequence = w->words[WRITTEN] + 1;
    size_t size = (n + OVERHEAD + 7) & ~(size_t)7;
    if (size > SMALL) {
        PyObject *frame = PyObject_CallFunction(wire_frame, "iiKLy#", kind, flags, (unsigned long long)sequence, (long long)time,
                                                body, (Py_ssize_t)n);
        char *bytes;
        Py_ssize_t length;
        int done = frame && PyBytes_AsStringAndSize(frame, &bytes, &length) == 0 ? put(w, bytes, length) : -1;
        Py_XDECREF(frame);
        return done;
    }
    struct __attribute__((packed)) {
        uint32_t crc, length;
        uint64_t sequence;
        int64_t time;
        uint16_t magic;
        uint8_t kind, flags;
        unsigned char body[SMALL - OVERHEAD];
    } frame;
    memset(&frame, 0, size);
    frame.length = size, frame.sequence = sequence, frame.time = time;
    frame.magic = MAGIC, frame.kind = kind, frame.flags = flags;
    memcpy(frame.body, body, n);
    frame.crc = checksum((unsigned char *)&frame + 4, size - 4);
    return put(w, (char *)&frame, size);
}

static PyObject *none(int done) {
    if (done < 0)
        return NULL;
    Py_INCREF(Py_None);
    return Py_None;
}

static PyObject *writer_attach(PyObject *self, PyObject *args) {
    Writer *w = (Writer *)self;
    if (!PyArg_ParseTuple(args, "i", &w->fd))
        return NULL;
    PyObject *bytes = PyMemoryView_FromMemory((char *)w->words, sizeof w->words, PyBUF_WRITE);
    PyObject *words = bytes ? PyObject_CallMethod(bytes, "cast", "s", "Q") : NULL;
    int done = words ? PyObject_SetAttrString(self, "words", words) : -1;
    Py_XDECREF(bytes);
    Py_XDECREF(words);
    return none(done);
}

static PyObject *writer_detach(PyObject *self, PyObject *unused) {
    PyObject *words = PyObject_GetAttrString(self, "words");
    PyObject *done = words ? PyObject_CallMethod(words, "release", NULL) : NULL;
    Py_XDECREF(words);
    return done;
}

static PyObject *writer_write(PyObject *self, PyObject *args) {
    int kind, flags;
    long long time;
    const char *body;
    Py_ssize_t n;
    if (!PyArg_ParseTuple(args, "iiLy#", &kind, &flags, &time, &body, &n))
        return NULL;
    return none(write_frame((Writer *)self, kind, flags, time, body, n));
}

static PyObject *writer_publish(PyObject *self, PyObject *unused) {
    return none(publish((Writer *)self));
}

static PyMethodDef writer_methods[] = {
    {"attach", writer_attach, METH_VARARGS, "Takes the file."},
    {"detach", writer_detach, METH_NOARGS, "Leaves it."},
    {"write", writer_write, METH_VARARGS, "A frame, and with it whatever stands in `words`."},
    {"publish", writer_publish, METH_NOARGS, "Writes what stands in `words`."},
    {0},
};
static PyType_Slot writer_slots[] = {
    {Py_tp_dealloc, dealloc}, {Py_tp_members, writer_members}, {Py_tp_methods, writer_methods}, {0, NULL},
};
static PyType_Spec writer_spec = {
    "whylate_vllm._native.Writer", sizeof(Writer), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, writer_slots,
};

/* What the recorder knows, as far as a steady iteration needs it: scheduler.Recorder says what each is. */

typedef struct {
    PyObject_HEAD
    uint64_t iteration, digest, spent;
    int stop;
    char irregular, speculative;
    unsigned token_budget, seq_budget;
    PyObject *ring, *read, *count_free, *waiting, *aside;
    PyObject *tokens, *order, *members, *live, *gone, *prefilling, *pending;
    PyObject *preempted, *fills, *evicted, *finishes, *skips;
} State;

#define OBJECT(name) {#name, T_OBJECT_EX, offsetof(State, name), 0, NULL}
static PyMemberDef state_members[] = {
    {"iteration", T_ULONGLONG, offsetof(State, iteration), 0, NULL},
    {"digest", T_ULONGLONG, offsetof(State, digest), 0, NULL},
    {"spent", T_ULONGLONG, offsetof(State, spent), 0, NULL},
    {"stop", T_INT, offsetof(State, stop), 0, NULL},
    {"token_budget", T_UINT, offsetof(State, token_budget), 0, NULL},
    {"seq_budget", T_UINT, offsetof(State, seq_budget), 0, NULL},
    {"irregular", T_BOOL, offsetof(State, irregular), 0, NULL},
    {"speculative", T_BOOL, offsetof(State, speculative), 0, NULL},
    OBJECT(ring), OBJECT(read), OBJECT(count_free), OBJECT(waiting), OBJECT(aside), OBJECT(tokens), OBJECT(order),
    OBJECT(members), OBJECT(live), OBJECT(gone), OBJECT(prefilling), OBJECT(pending), OBJECT(preempted), OBJECT(fills),
    OBJECT(evicted), OBJECT(finishes), OBJECT(skips),
    {0},
};

/* Every object of the state: the members' table is their list. */
static PyObject **object_of(PyObject *self, int i) {
    return state_members[i].type == T_OBJECT_EX ? (PyObject **)((char *)self + state_members[i].offset) : NULL;
}

static int state_traverse(PyObject *self, visitproc visit, void *arg) {
    for (int i = 0; state_members[i].name; i++)
        if (object_of(self, i))
            Py_VISIT(*object_of(self, i));
    Py_VISIT(Py_TYPE(self));
    return 0;
}

static int state_clear(PyObject *self) {
    for (int i = 0; state_members[i].name; i++)
        if (object_of(self, i))
            Py_CLEAR(*object_of(self, i));
    return 0;
}

static void state_dealloc(PyObject *self) {
    PyObject_GC_UnTrack(self);
    state_clear(self);
    dealloc(self);
}

static PyType_Slot state_slots[] = {
    {Py_tp_dealloc, state_dealloc}, {Py_tp_traverse, state_traverse}, {Py_tp_clear, state_clear},
    {Py_tp_members, state_members}, {0, NULL},
};
static PyType_Spec state_spec = {
    "whylate_vllm._native.State", sizeof(State), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, state_slots,
};

/* All of them are about to be looked at: one wait for memory instead of a dozen. */
static void fetch(State *s) {
    PyObject *soon[] = {s->ring, s->read, s->waiting, s->aside, s->order, s->members, s->live, s->prefilling, s->pending,
                        s->preempted, s->fills, s->evicted, s->skips, s->count_free, s->finishes, s->gone};
    for (size_t i = 0; i < sizeof soon / sizeof *soon; i++)
        __builtin_prefetch(soon[i]);
    if (s->ring) {
        __builtin_prefetch((char *)s->ring + 64);
        __builtin_prefetch((char *)s->ring + 128);
        __builtin_prefetch((char *)s->ring + 192);
    }
}

/* The length of one of them. An error is remembered, to be asked for once. */
static Py_ssize_t length(PyObject *object, int *failed) {
    Py_ssize_t n = PyObject_Size(object); /* -1 also for what is not there */
    *failed |= n < 0;
    return n;
}

static uint64_t number(PyObject *object, uint64_t most, int *failed) {
    unsigned long long n = object ? PyLong_AsUnsignedLongLong(object) : 0;
    if (!object || (n == (unsigned long long)-1 && PyErr_Occurred())) {
        *failed = 1;
        return 0;
    }
    if (n > most) {
        PyErr_Format(PyExc_OverflowError, "%llu does not fit into its field", n);
        *failed = 1;
    }
    return n;
}

static int tell(State *s, const char *method, int64_t time) {
    PyObject *told = time ? PyObject_CallMethod((PyObject *)s, method, "L", (long long)time)
                          : PyObject_CallMethod((PyObject *)s, method, NULL);
    Py_XDECREF(told);
    return told ? 0 : -1;
}

static int writes(State *s) {
    return s->ring && PyObject_TypeCheck(s->ring, (PyTypeObject *)Writer_type);
}

/* The same members in the same order. The engine gives the same strings for the same requests; if ever it does not, it is the
   Python that compares what they say. */
static int same(PyObject *tokens, PyObject *order) {
    Py_ssize_t place = 0, i = 0;
    PyObject *id, *n;
    if (!order || !PyList_Check(order) || PyList_Size(order) != PyDict_Size(tokens))
        return 0;
    while (PyDict_Next(tokens, &place, &id, &n))
        if (PyList_GetItem(order, i++) != id)
            return 0;
    return 1;
}

struct __attribute__((packed)) scheduled {
    uint64_t iteration, alias;
    int64_t returned;
    uint64_t digest;
    uint32_t tokens, members, running, waiting, free, token_budget, seq_budget, head, need, spent;
    uint8_t stop, code;
    uint16_t counts[7];
};

struct __attribute__((packed)) done {
    uint64_t iteration;
    int64_t returned;
    double key;
    uint32_t tokens;
    uint16_t emits, finishes;
};

/* Both give 1 for a record written, 0 for one that is not steady, which the Python shall write (nothing has been done yet), and
   -1 for an error of our own. */

static int scheduled(State *s, PyObject *scheduler, int64_t entered, PyObject *output) {
    int64_t returned = now();
    int failed = 0, done = -1;
    struct scheduled body = {.iteration = s->iteration + 1, .returned = returned, .digest = s->digest,
                             .token_budget = s->token_budget, .seq_budget = s->seq_budget};
    Writer *ring = (Writer *)s->ring;
    if (body.iteration % FULL_EVERY == 1 || s->speculative || !writes(s))
        return 0;
    fetch(s);

    PyObject *facts = NULL, *tokens = NULL, *total = NULL, *drafts = NULL, *free = NULL, *iteration = NULL;
    if (!s->read || !(facts = PyObject_CallFunctionObjArgs(s->read, scheduler, NULL)) ||
        !(tokens = PyObject_GetAttr(output, of_tokens)) || !(total = PyObject_GetAttr(output, of_total)) ||
        !(drafts = PyObject_GetAttr(output, of_drafts)))
        goto end;
    if (!PyTuple_Check(facts) || PyTuple_Size(facts) != 2 || !PyDict_Check(tokens)) {
        done = 0;
        goto end;
    }
    body.running = length(PyTuple_GetItem(facts, 0), &failed);
    body.waiting = length(s->waiting, &failed) + length(s->aside, &failed);
    body.members = PyDict_Size(tokens);
    body.tokens = number(total, UINT32_MAX, &failed);
    Py_ssize_t evicted = length(s->evicted, &failed), fills = length(s->fills, &failed), drafted = PyObject_IsTrue(drafts);
    if (drafted < 0)
        failed = 1;
    if (failed)
        goto end;
    int steady = !body.waiting && !drafted && body.members == body.running && body.tokens == body.members &&
                 length(s->members, &failed) == body.members && length(s->live, &failed) <= body.running &&
                 !length(s->prefilling, &failed) && !length(s->preempted, &failed) && !length(s->skips, &failed) &&
                 length(s->pending, &failed) < PENDING_MAX && same(tokens, s->order);
    if (failed || !steady) {
        done = failed ? -1 : 0;
        goto end;
    }
    body.alias = number(PyTuple_GetItem(facts, 1), UINT64_MAX, &failed);
    if (failed || !s->count_free || !(free = PyObject_CallFunctionObjArgs(s->count_free, NULL)))
        goto end;
    body.free = number(free, UINT32_MAX, &failed);
    if (failed || !(iteration = PyLong_FromUnsignedLongLong(body.iteration)) ||
        PyObject_SetAttr(output, of_iteration, iteration) < 0)
        goto end;
    if (fills && tell(s, "write_fills", 0) < 0)
        goto end;
    int together = body.iteration % TOGETHER == 0 || evicted >= AT_ONCE || !body.members;
    if (evicted && together && tell(s, "write_evictions", entered) < 0)
        goto end;
    if (PyDict_SetItem(s->pending, iteration, nobody) < 0)
        goto end;
    body.spent = s->spent < UINT32_MAX ? s->spent : UINT32_MAX;
    ring->words[LAUNCHED] = body.iteration;
    ring->words[LAUNCHED_AT] = entered;
    ring->words[LOAD] = body.running;
    if (write_frame(ring, SCHEDULED, 0, entered, &body, sizeof body) < 0)
        goto end;
    s->stop = 0;
    s->iteration = body.iteration;
    s->spent = now() - returned;
    done = 1;
end:
    Py_XDECREF(facts);
    Py_XDECREF(tokens);
    Py_XDECREF(total);
    Py_XDECREF(drafts);
    Py_XDECREF(free);
    Py_XDECREF(iteration);
    return done;
}

/* How many outputs there are, and the first time on them. */
static Py_ssize_t outputs(PyObject *results, double *key) {
    Py_ssize_t place = 0, count = 0, left = PyDict_Size(results);
    PyObject *client, *result;
    while (left-- > 0 && PyDict_Next(results, &place, &client, &result)) {
        Py_INCREF(result);
        PyObject *made = PyObject_GetAttr(result, of_outputs), *time = *key ? NULL : PyObject_GetAttr(result, of_timestamp);
        int failed = !made || (!*key && !time);
        if (!failed)
            count += length(made, &failed);
        if (!failed && time)
            failed = (*key = PyFloat_AsDouble(time)) == -1 && PyErr_Occurred();
        Py_XDECREF(made);
        Py_XDECREF(time);
        Py_DECREF(result);
        if (failed)
            return -1;
    }
    return count;
}

static int completed(State *s, int64_t entered, PyObject *output, PyObject *results) {
    int64_t returned = now();
    int failed = 0, done = -1;
    struct done body = {.returned = returned};
    Writer *ring = (Writer *)s->ring;
    fetch(s);
    Py_ssize_t fills = length(s->fills, &failed);
    int odd = s->irregular || length(s->finishes, &failed) || length(s->gone, &failed);
    if (failed)
        return -1;
    if (odd || !writes(s) || !s->pending || !PyDict_Check(results))
        return 0;

    PyObject *iteration = PyObject_GetAttr(output, of_iteration), *tokens = NULL, *silent = NULL;
    if (!iteration) {
        if (!PyErr_ExceptionMatches(PyExc_AttributeError))
            return -1;
        PyErr_Clear();
        return 0;
    }
    silent = PyDict_GetItemWithError(s->pending, iteration);
    Py_XINCREF(silent);
    if (!silent) {
        done = PyErr_Occurred() ? -1 : 0;
        goto end;
    }
    if (!(tokens = PyObject_GetAttr(output, of_tokens)))
        goto end;
    double key = 0;
    Py_ssize_t count = outputs(results, &key);
    if (count < 0)
        goto end;
    body.iteration = number(iteration, UINT64_MAX, &failed);
    Py_ssize_t due = length(tokens, &failed) - length(silent, &failed);
    if (failed || count != due) {
        done = failed ? -1 : 0;
        goto end;
    }
    body.tokens = count;
    body.key = key;
    if (PyDict_DelItem(s->pending, iteration) < 0 || (fills && tell(s, "write_fills", 0) < 0))
        goto end;
    PyObject *finishes = s->finishes;
    Py_INCREF(Py_None);
    s->finishes = Py_None;
    Py_DECREF(finishes);
    ring->words[COMPLETED] = body.iteration;
    ring->words[COMPLETED_AT] = entered;
    if (write_frame(ring, DONE, 0, entered, &body, sizeof body) < 0)
        goto end;
    s->spent += now() - returned;
    done = 1;
end:
    Py_XDECREF(iteration);
    Py_XDECREF(tokens);
    Py_XDECREF(silent);
    return done;
}

/* What stands in place of the scheduler's method: hooks.around's wrapper, which knows the two above. */

enum { SCHEDULE = 1, UPDATE }; /* native.py has them too */

typedef struct {
    PyObject_HEAD
    PyObject *guard, *original, *before, *after, *dict;
    int point;
} Hook;

static PyObject *hook_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *guard, *original, *before, *after;
    int point;
    if (!PyArg_ParseTuple(args, "O!OOOi", Fuse_type, &guard, &original, &before, &after, &point))
        return NULL;
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Hook *h = (Hook *)alloc(type, 0);
    if (!h)
        return NULL;
    Py_INCREF(guard), Py_INCREF(original), Py_INCREF(before), Py_INCREF(after);
    h->guard = guard, h->original = original, h->before = before, h->after = after, h->point = point;
    return (PyObject *)h;
}

static int hook_traverse(PyObject *self, visitproc visit, void *arg) {
    Hook *h = (Hook *)self;
    Py_VISIT(h->guard);
    Py_VISIT(h->original);
    Py_VISIT(h->before);
    Py_VISIT(h->after);
    Py_VISIT(h->dict);
    Py_VISIT(Py_TYPE(self));
    return 0;
}

static int hook_clear(PyObject *self) {
    Hook *h = (Hook *)self;
    Py_CLEAR(h->guard);
    Py_CLEAR(h->original);
    Py_CLEAR(h->before);
    Py_CLEAR(h->after);
    Py_CLEAR(h->dict);
    return 0;
}

static void hook_dealloc(PyObject *self) {
    PyObject_GC_UnTrack(self);
    hook_clear(self);
    dealloc(self);
}

static PyObject *hook_bind(PyObject *self, PyObject *object, PyObject *type) {
    if (object && object != Py_None)
        return PyObject_CallFunctionObjArgs(MethodType, self, object, NULL);
    Py_INCREF(self);
    return self;
}

/* The scheduler's recorder, if it has one already; a new reference. */
static State *recorder(PyObject *scheduler) {
    PyObject *found = PyObject_GetAttr(scheduler, of_whylate);
    if (!found)
        PyErr_Clear(); /* the Python makes one */
    else if (PyObject_TypeCheck(found, (PyTypeObject *)State_type))
        return (State *)found;
    Py_XDECREF(found);
    return NULL;
}

/* What is pending blows the fuse, whose words never raise. What is no Exception (KeyboardInterrupt) is not ours and passes: -1. */
static int blow(Hook *h) {
    PyObject *type, *error, *trace;
    if (!PyErr_ExceptionMatches(PyExc_Exception))
        return -1;
    PyErr_Fetch(&type, &error, &trace);
    PyErr_NormalizeException(&type, &error, &trace);
    if (trace && error)
        PyException_SetTraceback(error, trace);
    ((Fuse *)h->guard)->on = 0;
    PyObject *told = PyObject_CallMethod(h->guard, "blow", "O", error ? error : type);
    Py_XDECREF(told);
    Py_XDECREF(type);
    Py_XDECREF(error);
    Py_XDECREF(trace);
    if (told)
        return 0;
    if (!PyErr_ExceptionMatches(PyExc_Exception))
        return -1;
    PyErr_Clear();
    return 0;
}

/* The hook's Python: `before(self, args, kwargs)`, or with a result `after(self, state, result, args, kwargs)`. */
static PyObject *python(Hook *h, PyObject *state, PyObject *result, PyObject *args, PyObject *kwargs) {
    PyObject *self = PyTuple_GetItem(args, 0), *rest = PyTuple_GetSlice(args, 1, PyTuple_Size(args)), *said = NULL;
    PyObject *named = kwargs;
    if (named)
        Py_INCREF(named);
    else
        named = PyDict_New();
    if (rest && named)
        said = result ? PyObject_CallFunctionObjArgs(h->after, self, state, result, rest, named, NULL)
                      : PyObject_CallFunctionObjArgs(h->before, self, rest, named, NULL);
    Py_XDECREF(rest);
    Py_XDECREF(named);
    return said;
}

/* Recorder.updating, where nothing is speculative. */
static int updating(State *s) {
    PyObject *finishes = PyList_New(0), *last = s->finishes;
    if (!finishes)
        return -1;
    s->finishes = finishes;
    s->irregular = 0;
    Py_XDECREF(last);
    return 0;
}

/* What is to be written after the method, by the Python where it is not steady. */
static int after(Hook *h, State *s, int64_t entered, PyObject *state, PyObject *result, PyObject *args, PyObject *kwargs) {
    int done = 0;
    if (s && h->point == SCHEDULE) {
        done = scheduled(s, PyTuple_GetItem(args, 0), entered, result);
    } else if (s && !state) {
        PyObject *output = PyTuple_Size(args) > 1 ? PyTuple_GetItem(args, 1)
                           : kwargs               ? PyDict_GetItem(kwargs, of_output)
                                                  : NULL;
        done = output ? completed(s, entered, output, result) : 0;
    }
    if (done)
        return done;
    if (state)
        Py_INCREF(state);
    else
        state = h->point == SCHEDULE ? PyLong_FromLongLong(entered) : Py_BuildValue("(OLO)", s, (long long)entered, Py_None);
    PyObject *said = state ? python(h, state, result, args, kwargs) : NULL;
    Py_XDECREF(state);
    Py_XDECREF(said);
    return said ? 1 : -1;
}

static PyObject *hook_call(PyObject *self, PyObject *args, PyObject *kwargs) {
    Hook *h = (Hook *)self;
    Fuse *fuse = (Fuse *)h->guard;
    if (!fuse->on || PyTuple_Size(args) < 1)
        return PyObject_Call(h->original, args, kwargs);

    PyObject *state = NULL, *result = NULL;
    State *s = recorder(PyTuple_GetItem(args, 0));
    int ready = h->point == SCHEDULE            ? 1
                : s && !s->speculative          ? updating(s) == 0
                : (state = python(h, NULL, NULL, args, kwargs)) != NULL;
    if (ready || blow(h) == 0) {
        int64_t entered = now();
        result = PyObject_Call(h->original, args, kwargs);
        if (result && ready && fuse->on && after(h, s, entered, state, result, args, kwargs) < 0 && blow(h) < 0)
            Py_CLEAR(result);
    }
    Py_XDECREF(state);
    Py_XDECREF((PyObject *)s);
    return result;
}

static PyMemberDef hook_members[] = {{"__dictoffset__", T_PYSSIZET, offsetof(Hook, dict), READONLY, NULL}, {0}};
static PyGetSetDef hook_getset[] = {{"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL}, {0}};
static PyType_Slot hook_slots[] = {
    {Py_tp_new, hook_new}, {Py_tp_dealloc, hook_dealloc}, {Py_tp_traverse, hook_traverse}, {Py_tp_clear, hook_clear},
    {Py_tp_call, hook_call}, {Py_tp_descr_get, hook_bind}, {Py_tp_members, hook_members}, {Py_tp_getset, hook_getset}, {0, NULL},
};
static PyType_Spec hook_spec = {
    "whylate_vllm._native.Hook", sizeof(Hook), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_METHOD_DESCRIPTOR, hook_slots,
};

/* The module. */

static int base(PyObject *module, const char *name, PyType_Spec *spec, PyObject **type) {
    *type = PyType_FromSpec(spec);
    if (!*type)
        return -1;
    Py_INCREF(*type);
    if (PyModule_AddObject(module, name, *type) == 0)
        return 0;
    Py_DECREF(*type);
    return -1;
}

static PyObject *member(const char *module, const char *name) {
    PyObject *imported = PyImport_ImportModule(module), *found = imported ? PyObject_GetAttrString(imported, name) : NULL;
    Py_XDECREF(imported);
    return found;
}

static int execute(PyObject *module) {
    static int64_t loaded = -1;
    int64_t interpreter = PyInterpreterState_GetID(PyInterpreterState_Get());
    if (loaded >= 0 && loaded != interpreter) {
        PyErr_SetString(PyExc_ImportError, "another interpreter of this process has it");
        return -1;
    }
    loaded = interpreter;
    struct { PyObject **object; const char *name; } names[] = {
        {&of_whylate, "_whylate"}, {&of_iteration, "whylate_iteration"}, {&of_tokens, "num_scheduled_tokens"},
        {&of_total, "total_num_scheduled_tokens"}, {&of_drafts, "scheduled_spec_decode_tokens"}, {&of_outputs, "outputs"},
        {&of_timestamp, "timestamp"}, {&of_output, "scheduler_output"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!(*names[i].object = PyUnicode_InternFromString(names[i].name)))
            return -1;
    if (!(nobody = PyTuple_New(0)) || !(MethodType = member("types", "MethodType")) ||
        !(wire_frame = member("whylate_vllm.wire", "frame")))
        return -1;
    if (base(module, "Fuse", &fuse_spec, &Fuse_type) < 0 || base(module, "Writer", &writer_spec, &Writer_type) < 0 ||
        base(module, "State", &state_spec, &State_type) < 0 || base(module, "Hook", &hook_spec, &Hook_type) < 0)
        return -1;
    return PyModule_AddIntConstant(module, "VERSION", VERSION);
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, execute}, {0, NULL}};
static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "whylate_vllm._native", "The steady paths of the probe.", 0, NULL, slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__native(void) {
    return PyModuleDef_Init(&definition);
}
