"""What docs/adr/0005-store.md says of DuckDB, measured outside the product.

    WHYLATE_EXPORT=/tmp/export go test ./store/embedded -run TestExportMillion
    python3 -m venv /tmp/v && /tmp/v/bin/pip install duckdb && /tmp/v/bin/python docs/adr/0005-store.py /tmp/export
"""
import os, random, sys, time
import duckdb

export = sys.argv[1]
path = f"{export}/iterations/*.parquet"
rows = duckdb.sql(f"select count(*) from '{path}'").fetchall()[0][0]
print(f"duckdb {duckdb.__version__}, {rows} iterations of ten engines, 30 columns")
print(f"Parquet as sealed: {sum(os.path.getsize(os.path.join(export, 'iterations', f)) for f in os.listdir(export + '/iterations')) / rows:.1f} B a row")

keys = duckdb.sql(f"select distinct engine from '{path}'").fetchall()
random.seed(1)
questions = [(random.choice(keys)[0], random.randint(1, 99_500)) for _ in range(100)]


def ask(name, con, table):
    times = []
    for engine, first in questions:
        t = time.perf_counter()
        got = con.execute(f"select * from {table} where engine = ? and iteration between ? and ?", [engine, first, first + 299]).fetchall()
        times.append((time.perf_counter() - t) * 1e3)
        assert len(got) == 300
    times.sort()
    print(f"{name}: 300 rows of one engine, p50 {times[50]:.1f} ms, p99 {times[98]:.1f} ms")


for order in ["end_unix_ns", "engine, iteration"]:
    file = f"/tmp/adr5-{order[:3]}.duckdb"
    if os.path.exists(file):
        os.remove(file)
    con = duckdb.connect(file)
    t = time.perf_counter()
    con.execute(f"create table it as select * from '{path}' order by {order}")
    con.execute("checkpoint")
    print(f"DuckDB table by {order}: {os.path.getsize(file) / rows:.1f} B a row, written in {time.perf_counter() - t:.1f} s")
    ask(f"  by {order}", con, "it")
    con.close()
con = duckdb.connect()
ask("Parquet through DuckDB", con, f"'{path}'")
